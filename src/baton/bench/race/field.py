"""The deployments of a race: each in a process of its own, all up at once, on the same cores.

While one arm runs, the others are idle but for their heartbeats.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from baton.bench.chaos.host_process import running_host
from baton.bench.chaos.plan import HostPlan
from baton.bench.load.client import run_load
from baton.bench.load.inspect import inspect_target
from baton.bench.load.options import LoadOptions
from baton.bench.load.progress import Progress
from baton.bench.load.target import Abilities, Target
from baton.bench.race.arm import Arm
from baton.config import BatonConfig
from baton.errors import BatonError
from baton.goodput.record import RequestRecord
from baton.workload.request import Workload

REQUEST_TIMEOUT_S = 45.0
_AFTER_S = 1.5


class Lane:
    """A running arm: where its gateway listens, and where it writes its traces."""

    def __init__(self, arm: Arm, target: Target, abilities: Abilities, trace_dir: Path) -> None:
        self.arm = arm
        self.trace_dir = trace_dir
        self._target = target
        self._abilities = abilities

    async def run(
        self, workload: Workload, seed: int, *, enough: int | None = None
    ) -> list[RequestRecord]:
        """Send a workload; records are in order of arrival. Every seed has its own prompts.

        A while after so many requests have ended the others are interrupted: they count as
        cancelled. What was stalled until then has its next token by that time.
        """
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def watch(progress: Progress) -> None:
            if enough is not None and progress.num_ended == enough:
                loop.call_later(_AFTER_S, stop.set)

        options = LoadOptions(
            seed=seed, request_timeout_s=REQUEST_TIMEOUT_S, abilities=self._abilities
        )
        records = await run_load(self._target, workload, options, watch, stop=stop)
        return sorted(records, key=lambda record: record.scheduled_us)


@asynccontextmanager
async def open_lane(arm: Arm, base: BatonConfig, folder: Path) -> AsyncIterator[Lane]:
    """Start an arm; on leaving, every process of it is gone. Raises BatonError naming the arm."""
    trace_dir = folder / f"traces-{arm.name}"
    plan = HostPlan(config=arm.configure(base), trace_dir=str(trace_dir))
    log = folder / f"{arm.name}.log"
    async with AsyncExitStack() as stack:
        try:
            host = await stack.enter_async_context(running_host(plan, log))
        except BatonError as error:
            raise BatonError(f"arm {arm.name} does not start: {error}") from error
        address, port = host.address
        target = Target(base_url=f"http://{address}:{port}", model=base.model.name)
        yield Lane(arm, target, await inspect_target(target), trace_dir)


@asynccontextmanager
async def open_lanes(
    arms: tuple[Arm, ...], base: BatonConfig, folder: Path
) -> AsyncIterator[dict[str, Lane]]:
    """Start arms one after another, so that none measures the machine while another loads."""
    async with AsyncExitStack() as stack:
        yield {
            arm.name: await stack.enter_async_context(open_lane(arm, base, folder)) for arm in arms
        }
