"""A blueprint as Kubernetes objects: vLLM servers and their proxy, or Baton in one pod."""

import shlex
from collections import Counter
from importlib import resources
from typing import Any

from baton.core.ids import Role
from baton.planner.deploy.baton_config import baton_toml
from baton.planner.deploy.blueprint import Blueprint
from baton.planner.deploy.target import Target
from baton.planner.deploy.vllm import (
    HTTP_PORT,
    MASTER_PORT,
    PROXY_PORT,
    SIDE_PORT,
    VLLM_VERSION,
    Server,
    serve_flags,
    servers_of,
)

Manifest = dict[str, Any]
VLLM_IMAGE = f"vllm/vllm-openai:v{VLLM_VERSION}"
PYTHON_IMAGE = "python:3.11-slim"
BATON_PORT = 8000
GROUP_LABEL = "baton/plan-node"
"""Workers with one value of it share a node, as the plan has it."""
START_ATTEMPTS = 360
"""Of 10 s: weights of hundreds of gigabytes take their time to load."""


def manifests(blueprint: Blueprint, target: Target) -> list[Manifest]:
    """Every object, in the order in which they are created."""
    if target.is_cpu:
        return _baton(blueprint, target)
    proxy = f"{target.name}-proxy"
    found: list[Manifest] = [
        config_map(proxy, target, {"proxy.py": proxy_source()}),
    ]
    urls = []
    servers = servers_of(blueprint)
    shared = Counter(server.nodes[0] for server in servers if len(server.nodes) == 1)
    for server in servers:
        name = f"{target.name}-{server.name}"
        is_shared = len(server.nodes) == 1 and shared[server.nodes[0]] > 1
        group = f"{target.name}-node-{server.nodes[0]}" if is_shared else ""
        found += [_headless(name, target), _server(name, server, target, group)]
        urls += [f"--{server.pool.role}", f"http://{name}-0.{name}:{HTTP_PORT}"]
    command = ["python3", "/etc/proxy/proxy.py", "--host", "0.0.0.0", "--port", str(PROXY_PORT)]
    found.append(
        _deployment(
            proxy, target, VLLM_IMAGE, [*command, *urls], PROXY_PORT, "/etc/proxy", {"cpu": "2"}
        )
    )
    found.append(service(proxy, target, PROXY_PORT))
    return found


def proxy_source() -> str:
    """The proxy as a file of its own."""
    return (resources.files("baton.planner.deploy") / "proxy.py").read_text(encoding="utf-8")


def _server(name: str, server: Server, target: Target, group: str) -> Manifest:
    """One worker: a pod on each node that it spans, the first of which answers.

    Workers of one `group` share a node of the plan; "" leaves the node to the scheduler.
    """
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _metadata(name, target),
        "spec": {
            "serviceName": name,
            "replicas": len(server.nodes),
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {
                    "labels": labels_of(name, target) | ({GROUP_LABEL: group} if group else {})
                },
                "spec": {
                    **(_beside(group) if group else {}),
                    "containers": [_container(name, server, target)],
                    "volumes": [
                        {"name": "shm", "emptyDir": {"medium": "Memory"}},
                        {"name": "models", "emptyDir": {}},
                    ],
                },
            },
        },
    }


def _beside(group: str) -> Manifest:
    """On the node of the others of the group, and on none that holds another group.

    The first pod of a group matches itself, so it may stand anywhere.
    """
    where = {"topologyKey": "kubernetes.io/hostname"}
    others = [
        {"key": GROUP_LABEL, "operator": "Exists"},
        {"key": GROUP_LABEL, "operator": "NotIn", "values": [group]},
    ]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {
        "affinity": {
            "podAffinity": {
                required: [{"labelSelector": {"matchLabels": {GROUP_LABEL: group}}, **where}]
            },
            "podAntiAffinity": {
                required: [{"labelSelector": {"matchExpressions": others}, **where}]
            },
        }
    }


def _container(name: str, server: Server, target: Target) -> Manifest:
    gpus = str(len(server.gpus[0]))
    container: Manifest = {
        "name": "vllm",
        "image": VLLM_IMAGE,
        "command": _command(name, server, target),
        "env": _environment(server),
        "ports": [{"name": "http", "containerPort": HTTP_PORT}],
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "models", "mountPath": "/root/.cache/huggingface"},
        ],
    }
    if len(server.nodes) == 1:  # followers of a larger one answer no HTTP
        probe = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10}
        container["startupProbe"] = {**probe, "failureThreshold": START_ATTEMPTS}
        container["readinessProbe"] = probe
    return container


def _command(name: str, server: Server, target: Target) -> list[str]:
    where = ["--host", "0.0.0.0", "--port", str(HTTP_PORT)]
    words = ["vllm", "serve", target.model, *where, *serve_flags(server.pool, target)]
    if len(server.nodes) == 1:
        return words
    words += [
        *("--distributed-executor-backend", "mp", "--nnodes", str(len(server.nodes))),
        *("--master-addr", f"{name}-0.{name}", "--master-port", str(MASTER_PORT)),
    ]
    ranked = '--node-rank "$NODE_RANK" $([ "$NODE_RANK" = 0 ] || echo --headless)'
    return ["sh", "-c", f"exec {shlex.join(words)} {ranked}"]


def _environment(server: Server) -> list[Manifest]:
    found: list[Manifest] = [
        {
            "name": "HF_TOKEN",
            "valueFrom": {
                "secretKeyRef": {"name": "huggingface", "key": "token", "optional": True}
            },
        }
    ]
    if server.pool.role is not Role.MIXED:
        found += [
            _from_field("VLLM_NIXL_SIDE_CHANNEL_HOST", "status.podIP"),
            {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": str(SIDE_PORT)},
        ]
    if len(server.nodes) > 1:
        label = "metadata.labels['apps.kubernetes.io/pod-index']"
        found.append(_from_field("NODE_RANK", label))
    return found


def _from_field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _baton(blueprint: Blueprint, target: Target) -> list[Manifest]:
    """One pod, whatever nodes the plan has: over several, KubeRay's objects are beside it."""
    name = f"{target.name}-baton"
    cores = sum(pool.num_workers for pool in blueprint.pools) + 1
    nbytes = (
        sum(pool.num_workers * pool.kv_tokens for pool in blueprint.pools) * target.token_nbytes
    )
    several = len({stage.node for stage in blueprint.stages}) > 1
    extras = "serve,nixl" if several else "serve"
    command = [
        *("sh", "-c"),
        f"pip install --quiet 'kvbaton[{extras}]' && "
        f"exec baton serve --config /etc/baton/baton.toml --host 0.0.0.0 --port {BATON_PORT}",
    ]
    resources_ = {"cpu": str(cores), "memory": f"{-(-nbytes // (1 << 20)) + 4096}Mi"}
    return [
        config_map(name, target, {"baton.toml": baton_toml(blueprint, target)}),
        _deployment(name, target, PYTHON_IMAGE, command, BATON_PORT, "/etc/baton", resources_),
        service(name, target, BATON_PORT),
    ]


def _deployment(
    name: str,
    target: Target,
    image: str,
    command: list[str],
    port: int,
    mount: str,
    requests: dict[str, str],
) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(name, target),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": labels_of(name, target)},
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": image,
                            "command": command,
                            "ports": [{"name": "http", "containerPort": port}],
                            "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}},
                            "resources": {"requests": requests},
                            "volumeMounts": [
                                {"name": "files", "mountPath": mount},
                                {"name": "shm", "mountPath": "/dev/shm"},
                            ],
                        }
                    ],
                    "volumes": [
                        {"name": "files", "configMap": {"name": name}},
                        {"name": "shm", "emptyDir": {"medium": "Memory"}},
                    ],
                },
            },
        },
    }


def config_map(name: str, target: Target, files: dict[str, str]) -> Manifest:
    """Files by name, to be mounted."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(name, target),
        "data": files,
    }


def _headless(name: str, target: Target) -> Manifest:
    """Names for the pods of one worker, before they are ready too: ranks meet by them."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(name, target),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app": name},
            "ports": [{"name": "http", "port": HTTP_PORT}],
        },
    }


def service(name: str, target: Target, port: int) -> Manifest:
    """An address on port 80 for the pods of that name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(name, target),
        "spec": {
            "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "targetPort": port}],
        },
    }


def _metadata(name: str, target: Target) -> Manifest:
    return {"name": name, "labels": labels_of(name, target)}


def labels_of(name: str, target: Target) -> dict[str, str]:
    """What finds the pods of that name, and everything of this deployment."""
    return {"app": name, "app.kubernetes.io/part-of": target.name}
