"""A blueprint as a configuration of `baton serve`."""

import msgspec

from baton.config import BatonConfig, load_config
from baton.core.ids import Role
from baton.core.knobs import knobs_of
from baton.planner.deploy.blueprint import Blueprint
from baton.planner.deploy.target import Target
from baton.policy.routing.policies import ROUTE_POLICIES

_MS = 1


def baton_config(blueprint: Blueprint, target: Target) -> BatonConfig:
    """The configuration, validated; what a plan says nothing about keeps its default."""
    first, last = blueprint.pools[0], blueprint.pools[-1]
    count = {pool.role: pool.num_workers for pool in blueprint.pools}
    route = blueprint.route if blueprint.route in ROUTE_POLICIES else "shortest_queue"
    values: dict[str, object] = {
        "model.name": target.model,
        "model.device": "cpu" if target.is_cpu else "cuda",
        "model.deterministic": target.is_cpu,
        "model.dtype": "float32" if target.is_cpu else "bfloat16",
        "model.max_model_len": target.max_model_len,
        "cluster.prefill": count.get(Role.PREFILL, 0),
        "cluster.decode": count.get(Role.DECODE, 0),
        "cluster.mixed": count.get(Role.MIXED, 0),
        "worker.batch_policy": first.batch_policy,
        "worker.max_batch_tokens": first.max_batch_tokens,
        "worker.max_num_seqs": last.max_num_seqs,
        "worker.block_size": first.block_size,
        "worker.kv_nbytes": first.kv_tokens * target.token_nbytes,
        "router.policy": route,
        "router.ttft_slo_ms": max(_MS, round(target.ttft_ms)),
        "router.tpot_slo_ms": max(_MS, round(target.tpot_ms)),
    }
    nodes = _nodes(blueprint)
    if len(set(nodes)) > 1:
        values |= {"cluster.nodes": nodes, "transfer.data_plane": "nixl"}
    if last.block_size != first.block_size:
        values["cluster.decode_block_size"] = last.block_size
    if last.kv_tokens != first.kv_tokens:
        values["cluster.decode_kv_nbytes"] = last.kv_tokens * target.token_nbytes
    return load_config(None, [f"{key}={_toml(value)}" for key, value in values.items()])


def _nodes(blueprint: Blueprint) -> list[int]:
    """Of each worker in start order the node of its first stage."""
    return [
        blueprint.stages_of(at, worker)[0].node
        for at, pool in enumerate(blueprint.pools)
        for worker in range(pool.num_workers)
    ]


def baton_toml(blueprint: Blueprint, target: Target) -> str:
    """The same as a file for `baton serve --config`, with the knobs that differ from default."""
    plain = {(section, name): value for section, name, value, _ in knobs_of(BatonConfig())}
    lines = [f"# {line}" for line in target.comment.splitlines()]
    widest = max(pool.parallel.gpus for pool in blueprint.pools)
    if widest > 1:
        lines += [
            f"# The plan's workers have up to {widest} GPUs each; one of Baton's workers drives",
            "# one device. Counts and bounds below are the plan's: run it with the vLLM files,",
            "# or on devices that hold a whole model.",
        ]
    if len(set(_nodes(blueprint))) > 1:
        lines += [
            "# The workers stand on several nodes: `baton serve --config ... --cluster ray://auto`",
            "# places them as cluster.nodes says.",
        ]
    printed = ""
    for section, name, value, _ in knobs_of(baton_config(blueprint, target)):
        if plain[section, name] == value and section != "cluster":
            continue
        if section != printed:
            lines += ["", f"[{section}]"]
            printed = section
        lines.append(f"{name} = {_toml(value)}")
    return "\n".join(lines).lstrip("\n") + "\n"


def _toml(value: object) -> str:
    # Strings, numbers and booleans are spelled alike in JSON and TOML.
    return msgspec.json.encode(value).decode()
