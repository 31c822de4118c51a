"""A folder of ready deployments: one for each blueprint, and a page of how to start them."""

from collections.abc import Mapping
from pathlib import Path

from baton.errors import ConfigError
from baton.planner.deploy.baton_config import baton_toml
from baton.planner.deploy.blueprint import Blueprint
from baton.planner.deploy.kuberay import is_for_ray, ray_manifests
from baton.planner.deploy.kubernetes import manifests, proxy_source
from baton.planner.deploy.schemas import to_yaml, validate
from baton.planner.deploy.target import Target
from baton.planner.deploy.vllm import VLLM_VERSION, node_scripts


def deployment_files(blueprint: Blueprint, target: Target) -> dict[str, str]:
    """Name and text of every file of one blueprint; the manifests are validated."""
    objects = manifests(blueprint, target)
    versions = validate(objects)
    files = {"baton.toml": baton_toml(blueprint, target)}
    if not target.is_cpu:
        files |= node_scripts(blueprint, target)
        files["proxy.py"] = proxy_source()
    files["kubernetes.yaml"] = to_yaml(objects, target.comment)
    if is_for_ray(blueprint):
        pods = ray_manifests(blueprint, target)
        validate(pods)
        files["kuberay.yaml"] = to_yaml(pods, target.comment)
    files["README.md"] = _readme(blueprint, target, sorted(files), versions)
    return files


def write_deployments(
    folder: Path, blueprints: Mapping[str, Blueprint], target: Target
) -> list[Path]:
    """One folder for each name. Nothing is written unless every file could be made.

    What a former plan left in these folders goes: its scripts would start workers of another one.
    """
    texts = {name: deployment_files(blueprint, target) for name, blueprint in blueprints.items()}
    written = []
    try:
        for name, files in texts.items():
            place = folder / name
            place.mkdir(parents=True, exist_ok=True)
            for old in (*place.glob("vllm-node-*.sh"), *place.glob("kuberay.yaml")):
                old.unlink()
            for file, text in files.items():
                path = place / file
                path.write_text(text, encoding="utf-8")
                path.chmod(0o755 if file.endswith(".sh") else 0o644)
                written.append(path)
    except OSError as error:
        raise ConfigError(f"--out-dir {folder}: cannot be written: {error.strerror}") from error
    return written


def _has_pipelines(blueprint: Blueprint) -> bool:
    return any(pool.parallel.pp > 1 for pool in blueprint.pools)


def _readme(
    blueprint: Blueprint, target: Target, files: list[str], versions: tuple[str, ...]
) -> str:
    lines = [f"# {target.model}: {blueprint.text}", "", *target.comment.splitlines(), ""]
    lines += ["| pool | worker | stage | where |", "| --- | --- | --- | --- |"]
    for stage in blueprint.stages:
        gpus = ",".join(str(gpu) for gpu in stage.gpus)
        role = blueprint.pools[stage.pool].role
        lines.append(f"| {role} | {stage.worker} | {stage.stage} | node {stage.node}, GPU {gpus} |")
    several = len({stage.node for stage in blueprint.stages}) > 1
    cluster = " --cluster ray://auto` on a Ray cluster of these nodes" if several else "`"
    lines += ["", f"- `baton.toml`: `baton serve --config baton.toml{cluster}"]
    if any(file.startswith("vllm-node") for file in files):
        lines += [
            "- `vllm-node-N.sh`: on node N, with NODE_0, NODE_1, ... set to the nodes' addresses; "
            f"needs vLLM with NIXL (`pip install vllm=={VLLM_VERSION} nixl`)",
            "- `vllm-proxy.sh`: beside `proxy.py`, anywhere; clients speak to it on port 8000",
        ]
    if not target.is_cpu and len(blueprint.pools) > 1 and _has_pipelines(blueprint):
        lines.append(
            "- vLLM's NIXL connector may refuse workers of several pipeline stages: by its issue "
            "52913 and pull request 45880 it takes prefill stages when pushing, and no decode "
            "stages; plan again with fewer GPUs to a worker, or serve this split otherwise"
        )
    if not target.is_cpu and "/" not in target.model:
        lines.append(
            f"- {target.model!r} is the name that was planned with: plan with the id or the folder "
            "that your engine loads, or replace it"
        )
    checked = " and ".join(versions)
    lines.append(
        f"- `kubernetes.yaml`: `kubectl apply -f kubernetes.yaml`; valid for Kubernetes {checked}"
    )
    if "kuberay.yaml" in files:
        lines.append(
            "- `kuberay.yaml`: `kubectl apply -f kuberay.yaml` where KubeRay runs: a pod "
            "on a machine of its own for each node of the plan, gateway and router on the head; "
            "clients speak to the service. In place of `kubernetes.yaml`, not beside it"
        )
    return "\n".join([*lines, ""])
