"""The command line and environment of one vLLM server that is started here."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

import baton
from baton.config import BatonConfig
from baton.core.ids import Role
from baton.core.vllm_settings import ServerAddress, VllmSettings
from baton.integrations.vllm.keys import MEMBER_FILE
from baton.runtime.cores import share_cores

HOST = "127.0.0.1"
_GIB = 1 << 30
_CPU_BLOCK = 32
"""vLLM's attention on CPUs takes blocks of a multiple of so many tokens."""
_KV_ROLES = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer", Role.MIXED: "kv_both"}


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of one server; those of several servers do not meet below 100 servers."""

    http: int
    side_channel: int
    events: int
    replay: int
    control: int
    """Of Baton's connector."""


def ports_of(first: int, ordinal: int, num_ranks: int = 1) -> Ports:
    """Of the server with this number, of servers with at most so many ranks."""
    return Ports(
        http=first + ordinal,
        side_channel=first + 100 + ordinal,
        events=first + 200 + ordinal,
        replay=first + 300 + ordinal,
        control=first + 400 + ordinal * num_ranks,
    )


def address_of(config: BatonConfig, role: Role, ports: Ports) -> ServerAddress:
    """Where the gateway finds the server."""
    has_control = config.vllm.connector == "baton" and role is not Role.MIXED
    return ServerAddress(
        role=role,
        url=f"http://{HOST}:{ports.http}",
        events=f"tcp://{HOST}:{ports.events}",
        replay=f"tcp://{HOST}:{ports.replay}",
        control=f"tcp://{HOST}:{ports.control}" if has_control else "",
    )


def server_command(config: BatonConfig, model: str, role: Role, ports: Ports) -> list[str]:
    """The arguments of `vllm serve`, in its module form: the CPU wheel has no other."""
    settings, name = config.vllm, config.model.name
    on_cpu = config.model.device == "cpu"
    options: dict[str, object] = {
        "--model": model,
        "--served-model-name": name,
        "--dtype": config.model.dtype,
        "--host": HOST,
        "--port": ports.http,
        "--max-num-seqs": config.worker.max_num_seqs,
        "--kv-events-config": json.dumps(_events_config(ports)),
    }
    if config.model.max_model_len:
        options["--max-model-len"] = config.model.max_model_len
    if settings.tp_of(role) > 1:
        options["--tensor-parallel-size"] = settings.tp_of(role)
    if on_cpu:
        size = config.block_size_of(role)
        options["--block-size"] = -(-size // _CPU_BLOCK) * _CPU_BLOCK
    if role is not Role.MIXED:
        options["--kv-transfer-config"] = json.dumps(_transfer_config(config, role, ports))
    flags = ["--enable-prompt-tokens-details", *(["--enforce-eager"] if on_cpu else [])]
    words = [word for option, value in options.items() for word in (option, str(value))]
    own = settings.decode_arguments if role is Role.DECODE else settings.prefill_arguments
    return [
        settings.python or sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        *words,
        *flags,
        *settings.arguments,
        *(own if role is not Role.MIXED else ()),
    ]


def most_ranks(settings: VllmSettings) -> int:
    """Of any server that is started here: so many ports and devices each one has."""
    return max(settings.prefill_tp, settings.decode_tp)


def server_cores(config: BatonConfig) -> list[tuple[int, ...]]:
    """The cores of each server, rank after rank, in start order; empty without pinning."""
    counts = [config.vllm.tp_of(role) for role in config.cluster.roles]
    if not config.cluster.pin_cores:
        return [()] * len(counts)
    each = iter(share_cores(sum(counts), config.worker.threads))
    return [tuple(core for _ in range(count) for core in next(each)) for count in counts]


def server_environment(
    config: BatonConfig, ordinal: int, cores: tuple[int, ...], ports: Ports, num_ranks: int = 1
) -> dict[str, str]:
    """What the server's process gets beyond our own environment."""
    size = max(1, len(cores) // num_ranks)
    groups = [",".join(map(str, cores[at : at + size])) for at in range(0, len(cores), size)]
    environment = {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": HOST,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(ports.side_channel),
        "VLLM_NO_USAGE_STATS": "1",
    }
    if config.model.device == "cpu":
        environment |= {
            "VLLM_CPU_KVCACHE_SPACE": str(max(1, -(-config.worker.kv_nbytes // _GIB))),
            "VLLM_CPU_OMP_THREADS_BIND": "|".join(groups) or "auto",
            "OMP_NUM_THREADS": str(config.worker.threads),
        }
    if config.vllm.connector == "baton":
        source = str(Path(baton.__file__).parent.parent)
        others = os.environ.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = f"{source}:{others}" if others else source
    if config.model.device != "cpu":
        first = ordinal * most_ranks(config.vllm)
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(first, first + num_ranks)))
    return environment


def _events_config(ports: Ports) -> Mapping[str, Any]:
    return {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{ports.events}",
        "replay_endpoint": f"tcp://{HOST}:{ports.replay}",
    }


def _transfer_config(config: BatonConfig, role: Role, ports: Ports) -> Mapping[str, Any]:
    if config.vllm.connector == "baton":
        return {
            "kv_connector": "BatonConnector",
            "kv_connector_module_path": "baton.integrations.vllm.connector",
            "kv_role": _KV_ROLES[role],
            "kv_connector_extra_config": {
                "key_file": str(Path(config.vllm.key_folder).absolute() / MEMBER_FILE),
                "worker_id": f"{role}-{ports.control}",
                "port": ports.control,
            },
        }
    return {
        "kv_connector": "NixlConnector",
        "kv_role": _KV_ROLES[role],
        "kv_buffer_device": "cpu" if config.model.device == "cpu" else "cuda",
    }
