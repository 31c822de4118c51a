"""The calm plans that stories are played in: few options, no chance, no fault but the scripted."""

from collections.abc import Callable, Mapping
from typing import Any

from baton.config import CacheConfig, RouterConfig, TransferConfig, WorkerConfig
from baton.core.cache import Milestone
from baton.core.ids import Direction, PromptOrder, Role
from baton.sim.plan import Hardware, Plan

_NUMBER: Callable[[str], Any] = int
OPTIONS: dict[str, Callable[[str], Any]] = {
    "prefill": _NUMBER,
    "decode": _NUMBER,
    "mixed": _NUMBER,
    "direction": Direction,
    "schedule": str,
    "block_size": _NUMBER,
    "blocks": _NUMBER,
    "layers": _NUMBER,
    "batch": _NUMBER,
    "seqs": _NUMBER,
    "policy": str,
    "order": PromptOrder,
    "age": _NUMBER,
    "passed_over": _NUMBER,
    "preemptions": _NUMBER,
    "growth": _NUMBER,
    "chunk": _NUMBER,
    "credit": _NUMBER,
    "lease": _NUMBER,
    "retry": _NUMBER,
    "ttl": _NUMBER,
    "attempts": _NUMBER,
    "attempt_timeout": _NUMBER,
    "ttft_budget": _NUMBER,
    "waiting": _NUMBER,
    "worker_timeout": _NUMBER,
    "notify_us": _NUMBER,
    "host": _NUMBER,
    "disk": _NUMBER,
    "eviction": str,
    "milestone": Milestone,
}
"""What a story may choose. Times are in milliseconds, `chunk` and `credit` in bytes."""


def calm_plan(options: Mapping[str, str]) -> Plan:
    """A plan in which equal messages take equal time; raises ValueError on an unknown option."""
    values: dict[str, Any] = {}
    for name, text in options.items():
        if name not in OPTIONS:
            raise ValueError(f"{name}= is no option; known: {', '.join(OPTIONS)}")
        try:
            values[name] = OPTIONS[name](text)
        except ValueError as error:
            raise ValueError(f"{name}={text} cannot be read: {error}") from error
    get = values.get
    mixed = get("mixed", 0)
    return Plan(
        roles=(
            (Role.PREFILL,) * get("prefill", 0 if mixed else 1)
            + (Role.DECODE,) * get("decode", 0 if mixed else 1)
            + (Role.MIXED,) * mixed
        ),
        num_blocks=get("blocks", 64),
        num_host_blocks=get("host", 0),
        num_disk_blocks=get("disk", 0),
        cache=CacheConfig(
            eviction=get("eviction", "lru"), milestone=get("milestone", Milestone.PROMPT)
        ),
        num_layers=get("layers", 3),
        worker=WorkerConfig(
            block_size=get("block_size", 4),
            max_batch_tokens=get("batch", 64),
            max_num_seqs=get("seqs", 32),
            batch_policy=get("policy", "sarathi_serve"),
            prompt_order=get("order", PromptOrder.FCFS),
            age_override_ms=get("age", 0),
            max_passed_over=get("passed_over", 0),
            max_preemptions=get("preemptions", 4),
            growth_tokens=get("growth", 4),
        ),
        transfer=TransferConfig(
            direction=get("direction", Direction.PUSH),
            schedule=get("schedule", "layer"),
            chunk_nbytes=get("chunk", 128),
            credit_nbytes=get("credit", 4096),
            lease_ms=get("lease", 10_000),
            retry_ms=get("retry", 500),
            capability_ttl_ms=get("ttl", 10_000),
        ),
        router=RouterConfig(
            max_attempts=get("attempts", 3),
            attempt_timeout_ms=get("attempt_timeout", 60_000),
            ttft_budget_ms=get("ttft_budget", 120_000),
            max_waiting_requests=get("waiting", 512),
            worker_timeout_ms=get("worker_timeout", 5_000),
        ),
        hardware=Hardware(control_jitter_us=0, notify_us=get("notify_us", 20)),
        replayed=True,
    )
