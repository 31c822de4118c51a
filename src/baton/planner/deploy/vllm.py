"""A blueprint as vLLM processes: a script for each node, and the proxy in front of them.

K/V goes from prefill to decode by vLLM's NIXL connector: the proxy asks a prefill server with
`kv_transfer_params`, and hands what that answers to a decode server, which pulls the blocks.
"""

import shlex

import msgspec

from baton.core.ids import Role
from baton.planner.deploy.blueprint import Blueprint, Pool, Stage
from baton.planner.deploy.target import Target

VLLM_VERSION = "0.32.0"
"""Whose flags and connector all files are for: image, installation and comments name this one."""
HTTP_PORT, SIDE_PORT, MASTER_PORT, PROXY_PORT = 8100, 5600, 29500, 8000
PORT_STEP = 64
"""Each server gets the next HTTP port, and side-channel ports of its own, so far apart that the
ranks of one server (a port each) cannot reach the next one's."""
KV_TRANSFER = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One worker: a process on each node that it spans."""

    name: str
    pool: Pool
    nodes: tuple[int, ...]
    """The first one answers HTTP."""
    gpus: tuple[tuple[int, ...], ...]
    """Of each of these nodes."""
    slot: int
    """Number over all servers, so that no two of them want one port on any node."""

    @property
    def port(self) -> int:
        """Of HTTP, on the first node."""
        return HTTP_PORT + self.slot


def servers_of(blueprint: Blueprint) -> list[Server]:
    """All workers in pool order."""
    found: list[Server] = []
    for at, pool in enumerate(blueprint.pools):
        for worker in range(pool.num_workers):
            by_node: dict[int, list[int]] = {}
            for stage in blueprint.stages_of(at, worker):
                by_node.setdefault(stage.node, []).extend(stage.gpus)
            found.append(
                Server(
                    name=f"{pool.role}-{worker}",
                    pool=pool,
                    nodes=tuple(by_node),
                    gpus=tuple(tuple(gpus) for gpus in by_node.values()),
                    slot=len(found),
                )
            )
    return found


def serve_flags(pool: Pool, target: Target) -> list[str]:
    """Flags that do not depend on where a worker runs."""
    flags = [
        *("--tensor-parallel-size", str(pool.parallel.tp)),
        *("--pipeline-parallel-size", str(pool.parallel.pp)),
        *("--max-model-len", str(target.max_model_len)),
        *("--max-num-batched-tokens", str(max(pool.max_batch_tokens, pool.max_num_seqs))),
        *("--max-num-seqs", str(pool.max_num_seqs)),
        *("--block-size", str(pool.block_size)),
        *("--gpu-memory-utilization", f"{target.memory_utilization:g}"),
    ]
    if pool.role is not Role.MIXED:
        flags += ["--kv-transfer-config", msgspec.json.encode(KV_TRANSFER).decode()]
    return flags


def node_scripts(blueprint: Blueprint, target: Target) -> dict[str, str]:
    """Name and text of the script of each node, and of the proxy's."""
    servers = servers_of(blueprint)
    nodes = sorted({node for server in servers for node in server.nodes})
    scripts = {f"vllm-node-{node}.sh": _node_script(node, servers, target) for node in nodes}
    scripts["vllm-proxy.sh"] = _proxy_script(servers, target)
    return scripts


def _node_script(node: int, servers: list[Server], target: Target) -> str:
    mine = [server for server in servers if node in server.nodes]
    made_for = f"# For vLLM {VLLM_VERSION}."
    lines = [*_head(target, mine), made_for, "pids=()", "trap 'kill \"${pids[@]}\"' EXIT", ""]
    for server in mine:
        rank = server.nodes.index(node)
        lines += [*_command(server, rank, target), "pids+=($!)", ""]
    return "\n".join([*lines, "wait -n  # one that ends takes the others with it", ""])


def _command(server: Server, rank: int, target: Target) -> list[str]:
    devices = ",".join(str(gpu) for gpu in server.gpus[rank])
    environment = [f"CUDA_VISIBLE_DEVICES={devices}"]
    if server.pool.role is not Role.MIXED:
        environment += [
            f"VLLM_NIXL_SIDE_CHANNEL_HOST={_address(server.nodes[rank])}",
            f"VLLM_NIXL_SIDE_CHANNEL_PORT={SIDE_PORT + PORT_STEP * server.slot}",
        ]
    flags = [*serve_flags(server.pool, target)]
    where = ["--host", "0.0.0.0", "--port", str(server.port)]
    quoted = [shlex.quote(word) for word in (*where, *flags)]
    if len(server.nodes) > 1:
        quoted += [
            *("--distributed-executor-backend", "mp"),
            *("--nnodes", str(len(server.nodes)), "--node-rank", str(rank)),
            *("--master-addr", _address(server.nodes[0])),
            *("--master-port", str(MASTER_PORT + server.slot)),
            *(["--headless"] if rank else []),
        ]
    pairs = [
        " ".join(quoted[at : at + 2]) if quoted[at] != "--headless" else quoted[at]
        for at in range(0, len(quoted), 2)
    ]
    return [
        f"# {server.name}",
        *(f"{one} \\" for one in environment),
        " \\\n  ".join([f"vllm serve {shlex.quote(target.model)}", *pairs]) + " &",
    ]


def _address(node: int) -> str:
    return f'"$NODE_{node}"'


def _head(target: Target, servers: list[Server]) -> list[str]:
    nodes = sorted({node for server in servers for node in server.nodes})
    return [
        "#!/usr/bin/env bash",
        *(f"# {line}" for line in target.comment.splitlines()),
        "set -euo pipefail",
        *(f': "${{NODE_{node}:?set NODE_{node} to the address of node {node}}}"' for node in nodes),
    ]


def _proxy_script(servers: list[Server], target: Target) -> str:
    urls = [
        f'  --{server.pool.role} "http://$NODE_{server.nodes[0]}:{server.port}"'
        for server in servers
    ]
    first = sorted({server.nodes[0] for server in servers})
    lines = [
        "#!/usr/bin/env bash",
        *(f"# {line}" for line in target.comment.splitlines()),
        "set -euo pipefail",
        *(f': "${{NODE_{node}:?set NODE_{node} to the address of node {node}}}"' for node in first),
        " \\\n".join([f"exec python3 proxy.py --host 0.0.0.0 --port {PROXY_PORT}", *urls]),
        "",
    ]
    return "\n".join(lines)


def stage_text(stage: Stage) -> str:
    """Where a stage stands."""
    return f"node {stage.node}, GPUs {','.join(str(gpu) for gpu in stage.gpus)}"
