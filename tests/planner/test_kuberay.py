"""KubeRay objects of a plan: pods with the room that Baton asks Ray for, on their own machines."""

import tomllib

import msgspec
import pytest

from baton.config import load_config
from baton.core.ids import Role
from baton.errors import ConfigError
from baton.hardware.parallel import Parallel
from baton.planner.deploy.blueprint import Blueprint, Pool, pack_stages
from baton.planner.deploy.kuberay import ray_manifests
from baton.planner.deploy.kubernetes import GROUP_LABEL
from baton.planner.deploy.schemas import to_yaml, validate
from baton.planner.deploy.target import Target
from baton.planner.deploy.write import deployment_files
from baton.policy.worker_placement import NodeRoom, place_workers, shortage
from baton.runtime.ray.needs import needs_of

yaml = pytest.importorskip("yaml", reason="the extra `plan` is not installed")
pytest.importorskip("kubernetes_validate", reason="the extra `plan` is not installed")

CPU = Target(
    model="smollm2",
    max_model_len=2048,
    token_nbytes=46_080,
    ttft_ms=900,
    tpot_ms=60.4,
    gpus_per_node=2,
    is_cpu=True,
)
GPU = msgspec.structs.replace(CPU, is_cpu=False)


def plan(prefill: int, decode: int, per_node: int = 2, tp: int = 1) -> Blueprint:
    pools = tuple(
        Pool(role=role, num_workers=count, parallel=Parallel(tp=tp), kv_tokens=kv_tokens)
        for role, count, kv_tokens in (
            (Role.PREFILL, prefill, 10_000),
            (Role.DECODE, decode, 20_000),
        )
    )
    return Blueprint(pools=pools, stages=pack_stages(pools, per_node))


def job_of(objects):
    return next(one for one in objects if one["kind"] == "RayJob")


def rooms_of(job) -> list[NodeRoom]:
    """The nodes that Ray will have, by what they are started with."""
    spec = job["spec"]["rayClusterSpec"]
    found = [("head", 1, spec["headGroupSpec"])]
    found += [(one["groupName"], one["replicas"], one) for one in spec["workerGroupSpecs"]]
    return [
        NodeRoom(
            name=f"{name}-{at}",
            cpus=int(group["rayStartParams"]["num-cpus"]) - (name == "head"),
            gpus=int(group["rayStartParams"]["num-gpus"]),
            memory_nbytes=int(group["rayStartParams"]["memory"]),
        )
        for name, count, group in found
        for at in range(count)
    ]


@pytest.mark.parametrize("target", [CPU, GPU])
@pytest.mark.parametrize("blueprint", [plan(1, 2), plan(3, 5), plan(2, 2, per_node=1)])
def test_the_pods_have_the_room_that_baton_asks_ray_for_and_no_pod_less(
    blueprint, target, tmp_path
):
    objects = ray_manifests(blueprint, target)
    text = objects[0]["data"]["baton.toml"]
    (tmp_path / "baton.toml").write_text(text)
    config = load_config(tmp_path / "baton.toml")
    asked = place_workers(needs_of(config), "pack", nodes=config.cluster.nodes)
    rooms = rooms_of(job_of(objects))
    assert len(rooms) == 1 + len(asked.bundles), "a node of the plan is a pod, and the head"
    assert shortage(asked, rooms) == ""
    for at in range(1, len(rooms)):
        assert shortage(asked, rooms[:at] + rooms[at + 1 :]), f"{rooms[at].name} is needed"


def test_pods_hold_more_memory_than_they_lend_and_stand_apart():
    for group in job_of(ray_manifests(plan(1, 2), GPU))["spec"]["rayClusterSpec"][
        "workerGroupSpecs"
    ]:
        template, params = group["template"], group["rayStartParams"]
        (container,) = template["spec"]["containers"]
        limits = container["resources"]["limits"]
        assert int(limits["memory"].removesuffix("Mi")) << 20 > int(params["memory"])
        assert limits["nvidia.com/gpu"] == params["num-gpus"]
        (apart,) = template["spec"]["affinity"]["podAntiAffinity"].popitem()[1]
        wanted = apart["labelSelector"]["matchLabels"]
        assert wanted[GROUP_LABEL] == template["metadata"]["labels"][GROUP_LABEL]


def test_the_objects_are_valid_and_the_service_finds_the_head():
    objects = ray_manifests(plan(1, 2), CPU)
    validate(objects)
    assert list(yaml.safe_load_all(to_yaml(objects, "a comment"))) == objects
    head = job_of(objects)["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    service = objects[-1]["spec"]
    assert service["selector"].items() <= head["metadata"]["labels"].items()
    (container,) = head["spec"]["containers"]
    assert service["ports"][0]["targetPort"] in {one["containerPort"] for one in container["ports"]}
    mount = next(one for one in container["volumeMounts"] if one["name"] == "files")["mountPath"]
    assert f"--config {mount}/baton.toml" in job_of(objects)["spec"]["entrypoint"]
    tomllib.loads(objects[0]["data"]["baton.toml"])


def test_what_kuberay_or_kubernetes_does_not_know_is_named():
    job = job_of(ray_manifests(plan(1, 2), CPU))
    job["spec"]["entryPoint"] = "x"
    with pytest.raises(ConfigError, match=r"RayJob/smollm2-ray: not valid for KubeRay.*entryPoint"):
        validate([job])
    job = job_of(ray_manifests(plan(1, 2), CPU))
    group = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    group["template"]["spec"]["afinity"] = {}
    with pytest.raises(ConfigError, match=r"PodTemplate/smollm2-ray-prefill1-decode1.*afinity"):
        validate([job])


def test_only_plans_that_ray_can_run_get_them():
    files = deployment_files(plan(1, 2), CPU)
    assert "kuberay.yaml" in files and "kuberay.yaml" in files["README.md"]
    for blueprint in (plan(1, 1), plan(1, 2, per_node=8, tp=4)):
        assert "kuberay.yaml" not in deployment_files(blueprint, GPU)
