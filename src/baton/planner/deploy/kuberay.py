"""A blueprint over several nodes as KubeRay objects: Baton's workers in pods of a Ray cluster."""

import shlex
from collections.abc import Sequence

from baton.config import BatonConfig
from baton.core.ids import Role
from baton.planner.deploy.baton_config import baton_config, baton_toml
from baton.planner.deploy.blueprint import Blueprint
from baton.planner.deploy.kubernetes import (
    BATON_PORT,
    GROUP_LABEL,
    Manifest,
    config_map,
    labels_of,
    service,
)
from baton.planner.deploy.target import Target
from baton.policy.worker_placement import Bundle, Need, place_workers

RAY_VERSION = "2.60.0"
RAY_IMAGE = f"rayproject/ray:{RAY_VERSION}-py311"
_STORE_NBYTES = 80 << 20
"""Ray's object store carries nothing of ours."""
_WORKER_NBYTES = 4 << 30
"""Of a pod for each worker, beside its K/V: weights and what computes."""
_FOLDER = "/etc/baton"
_MIB = 1 << 20


def is_for_ray(blueprint: Blueprint) -> bool:
    """Workers on several nodes, each of which drives one device."""
    nodes = {stage.node for stage in blueprint.stages}
    return len(nodes) > 1 and all(pool.parallel.gpus == 1 for pool in blueprint.pools)


def ray_manifests(blueprint: Blueprint, target: Target) -> list[Manifest]:
    """The configuration, a Ray cluster that runs it, and its address.

    Gateway and router are the driver on the head, which has a core for them and no other. Each
    node of the plan is a pod with exactly the room that its group of workers asks Ray for.
    """
    name = f"{target.name}-ray"
    config = baton_config(blueprint, target)
    cluster = {
        "rayVersion": RAY_VERSION,
        "headGroupSpec": {
            "rayStartParams": _params(cpus=1, gpus=0, memory_nbytes=_MIB),
            "template": _head(name, target),
        },
        "workerGroupSpecs": [
            _group(name, target, bundle, count) for bundle, count in _shapes(_bundles(config))
        ],
    }
    serve = ["baton", "serve", "--config", f"{_FOLDER}/baton.toml", "--cluster", "ray://auto"]
    job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name, "labels": labels_of(name, target)},
        "spec": {
            "entrypoint": shlex.join([*serve, "--host", "0.0.0.0", "--port", str(BATON_PORT)]),
            "submissionMode": "HTTPMode",
            "runtimeEnvYAML": 'pip: ["kvbaton[serve,nixl,ray]"]\n',
            "shutdownAfterJobFinishes": False,
            "rayClusterSpec": cluster,
        },
    }
    files = {"baton.toml": baton_toml(blueprint, target)}
    return [config_map(name, target, files), job, service(name, target, BATON_PORT)]


def _bundles(config: BatonConfig) -> tuple[Bundle, ...]:
    """What `baton serve --cluster ray` asks Ray for."""
    cluster = config.cluster
    needs = [
        Need(
            worker_id=worker_id,
            role=role,
            cpus=config.worker.threads,
            gpus=int(config.model.device.startswith("cuda")),
            memory_nbytes=config.kv_nbytes_of(role) + config.cache.host_nbytes,
        )
        for worker_id, role in zip(cluster.worker_ids, cluster.roles, strict=True)
    ]
    return place_workers(needs, cluster.placement, nodes=cluster.nodes).bundles


def _shapes(bundles: Sequence[Bundle]) -> list[tuple[Bundle, int]]:
    """One of each kind of group, and how many there are of it."""
    kinds: dict[str, list[Bundle]] = {}
    for bundle in bundles:
        kinds.setdefault(_kind(bundle), []).append(bundle)
    return [(same[0], len(same)) for same in kinds.values()]


def _kind(bundle: Bundle) -> str:
    """Such as prefill1-decode2: workers of one role are equal in a plan."""
    counts = {
        role: sum(worker.startswith(f"{role}-") for worker in bundle.workers) for role in Role
    }
    return "-".join(f"{role}{count}" for role, count in counts.items() if count)


def _group(name: str, target: Target, bundle: Bundle, count: int) -> Manifest:
    nbytes = bundle.memory_nbytes + len(bundle.workers) * _WORKER_NBYTES
    room = {"cpu": str(bundle.cpus), "memory": f"{-(-nbytes // _MIB)}Mi"}
    limits = {"memory": room["memory"]}
    if bundle.gpus:
        limits["nvidia.com/gpu"] = str(bundle.gpus)
    return {
        "groupName": _kind(bundle),
        "replicas": count,
        "minReplicas": count,
        "maxReplicas": count,
        "rayStartParams": _params(bundle.cpus, bundle.gpus, bundle.memory_nbytes),
        "template": {
            "metadata": {"labels": {**labels_of(f"{name}-worker", target), GROUP_LABEL: name}},
            "spec": {
                "affinity": _apart(name),
                "containers": [_container("ray-worker", {"requests": room, "limits": limits})],
                "volumes": [_shm()],
            },
        },
    }


def _head(name: str, target: Target) -> Manifest:
    files = {"name": "files", "configMap": {"name": name}}
    container = _container("ray-head", {"requests": {"cpu": "1", "memory": "4096Mi"}})
    container["volumeMounts"].append({"name": "files", "mountPath": _FOLDER})
    container["ports"] = [
        {"name": "http", "containerPort": BATON_PORT},
        {"name": "gcs-server", "containerPort": 6379},
        {"name": "dashboard", "containerPort": 8265},
    ]
    return {
        "metadata": {"labels": labels_of(name, target)},
        "spec": {"containers": [container], "volumes": [_shm(), files]},
    }


def _container(name: str, resources: Manifest) -> Manifest:
    return {
        "name": name,
        "image": RAY_IMAGE,
        "resources": resources,
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }


def _apart(name: str) -> Manifest:
    """No two nodes of the plan on one machine."""
    where = {"topologyKey": "kubernetes.io/hostname"}
    others = {"labelSelector": {"matchLabels": {GROUP_LABEL: name}}, **where}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [others]}}


def _shm() -> Manifest:
    return {"name": "shm", "emptyDir": {"medium": "Memory"}}


def _params(cpus: int, gpus: int, memory_nbytes: int) -> dict[str, str]:
    """Of `ray start`, which takes everything as words."""
    return {
        "num-cpus": str(cpus),
        "num-gpus": str(gpus),
        "memory": str(memory_nbytes),
        "object-store-memory": str(_STORE_NBYTES),
    }
