"""What lies between client, gateway, router and worker: a real deployment under a small load.

Means over requests that overlap, so that engines compute while messages pass: an event loop that
shares its core with an engine hears a message late, and that is a part of the delay.
"""

import asyncio
import math
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

from baton.bench.load.body import BodyMaker
from baton.bench.load.call import CallFailed, Received, call, make_session
from baton.bench.load.inspect import inspect_target
from baton.bench.load.options import LoadOptions
from baton.bench.load.target import Target
from baton.bench.profile.front_child import FrontOrder, FrontSays, Passed
from baton.config import BatonConfig
from baton.errors import BatonError
from baton.policy.service_profile import ServiceDelays
from baton.runtime.clock import now_us
from baton.telemetry.trace.event import TraceEvent
from baton.workload.request import Workload, WorkloadRequest

_COMMAND = (sys.executable, "-m", "baton.bench.profile.front_child")
_STREAMS = 4
"""Requests that are under way at once."""
_NUM_PROMPT, _NUM_OUTPUT = 96, 16
_NUM_MESSAGES = 3
"""From the router's arrival to the prompt in a worker's queue: a reservation, its answer, an order.
"""
_KEPT_SHARE = 0.95
_KV_NBYTES = 256 << 20
_LINE_NBYTES = 1 << 26
_ENDS_WITHIN_S = 30.0


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One request as its client saw it, on the clock of this machine."""

    sent_us: int
    token_us: tuple[int, ...]


def measure_delays(config: BatonConfig, num_requests: int) -> ServiceDelays:
    """Raises BatonError when the deployment does not start or a request fails."""
    return asyncio.run(_measure(_served(config), num_requests))


def _served(config: BatonConfig) -> BatonConfig:
    """A prefill and a decode worker, each on cores of its own, where there are enough."""
    replace = msgspec.structs.replace
    cores, threads = len(os.sched_getaffinity(0)), config.worker.threads
    is_split = cores >= 2 * threads
    return replace(
        config,
        model=replace(config.model, self_test=False),  # the profiled engine was proven already
        cluster=replace(
            config.cluster,
            prefill=int(is_split),
            decode=int(is_split),
            mixed=int(not is_split),
        ),
        worker=replace(config.worker, kv_nbytes=min(config.worker.kv_nbytes, _KV_NBYTES)),
        gateway=replace(config.gateway, host="127.0.0.1", port=0),
    )


async def _measure(config: BatonConfig, num_requests: int) -> ServiceDelays:
    with tempfile.TemporaryDirectory(prefix="baton-delays-") as name:
        async with _front(config, Path(name)) as process:
            port = (await _answer(process)).port
            target = Target(base_url=f"http://127.0.0.1:{port}", model=config.model.name)
            seen = await _load(target, num_requests)
            assert process.stdin is not None
            process.stdin.close()
            passed = (await _answer(process)).passed
        return delays(seen, passed, queued_us(Path(name)))


@asynccontextmanager
async def _front(config: BatonConfig, folder: Path) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *_COMMAND, stdin=PIPE, stdout=PIPE, limit=_LINE_NBYTES
    )
    order = FrontOrder(config=config, trace_dir=str(folder), parent_pid=os.getpid())
    try:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        yield process
        async with asyncio.timeout(_ENDS_WITHIN_S):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _answer(process: Process) -> FrontSays:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        if line.startswith(b"{"):  # libraries may print too
            said = msgspec.json.decode(line, type=FrontSays)
            if said.error:
                raise BatonError(f"delays: {said.error}")
            return said
    raise BatonError(f"delays: the served process ended with exit {await process.wait()}")


async def _load(target: Target, num_requests: int) -> dict[str, Seen]:
    """Requests by name, without the first ones, at which the engines still warm up."""
    abilities = await inspect_target(target)
    one = WorkloadRequest(
        arrival_us=0, num_prompt_tokens=_NUM_PROMPT, num_output_tokens=_NUM_OUTPUT
    )
    workload = Workload(name="delays", source="", requests=(one,) * (num_requests + _STREAMS))
    bodies = deque(enumerate(BodyMaker(target, abilities, workload, LoadOptions(seed=1)).bodies()))
    seen: dict[str, Seen] = {}

    async def stream(session: aiohttp.ClientSession) -> None:
        while bodies:
            index, body = bodies.popleft()
            received, name = Received(), f"delays-{index}"
            headers = {**target.all_headers, "X-Request-ID": name}
            sent_us = now_us()
            url = target.url(target.endpoint.path)
            await call(session, url, headers, body, received, now_us)
            if index >= _STREAMS:
                seen[name] = Seen(sent_us=sent_us, token_us=tuple(received.token_times_us))

    async with make_session(timeout_s=60.0) as session:
        try:
            await asyncio.gather(*(stream(session) for _ in range(_STREAMS)))
        except CallFailed as error:
            raise BatonError(f"delays: a request failed: {error}") from error
    return seen


def queued_us(folder: Path) -> dict[str, int]:
    """By the nodes' name of a request, how long it took from the router to a worker's queue."""
    decoder = msgspec.json.Decoder(TraceEvent)
    arrived: dict[str, int] = {}
    queued: dict[str, int] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            event = decoder.decode(line)
            if event.name == "arrived":
                arrived[event.request_id] = event.at_us
            elif event.name == "prefill_queued":
                queued.setdefault(event.request_id, event.at_us)
    return {name: at_us - arrived[name] for name, at_us in queued.items() if name in arrived}


def delays(
    seen: dict[str, Seen], passed: dict[str, Passed], queued: dict[str, int]
) -> ServiceDelays:
    """From what client, gateway and workers noted of the same requests."""
    pairs = [(one, passed[name]) for name, one in seen.items() if name in passed]
    waits = [queued[other.request_id] for _, other in pairs if other.request_id in queued]
    # A chunk may hold several tokens, or none yet: only answers that show each one are compared.
    outs = [
        at_us - left_us
        for one, other in pairs
        if len(one.token_us) == len(other.token_us)
        for at_us, left_us in zip(one.token_us, other.token_us, strict=True)
    ]
    if not waits or not outs:
        raise BatonError(
            f"delays: {len(seen)} requests left {len(waits)} traces and {len(outs)} comparable "
            "chunks; nothing can be said"
        )
    return ServiceDelays(
        control_us=_typical(waits) / _NUM_MESSAGES,
        gateway_in_us=_typical([other.submitted_us - one.sent_us for one, other in pairs]),
        gateway_out_us=_typical(outs),
        num_requests=len(pairs),
    )


def _typical(values: Sequence[int]) -> float:
    """The mean without the longest twentieth, in which something else had the machine."""
    kept = sorted(values)[: max(1, math.ceil(_KEPT_SHARE * len(values)))]
    return max(0.0, sum(kept) / len(kept))
