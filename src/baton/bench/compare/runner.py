"""Runs cases on one deployment and brings back what it answered."""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from baton.bench.compare.arm import Arm
from baton.bench.compare.asking import ask_router
from baton.bench.compare.calling import call_gateway
from baton.bench.compare.case import Ask, Case, Round, prompt_of
from baton.bench.compare.record import ArmRecords, Record
from baton.bench.compare.trace import TraceFacts, read_traces, with_facts
from baton.config import BatonConfig
from baton.core.cache import Milestone
from baton.core.ids import Mode, Role
from baton.core.layout import ModelInfo
from baton.errors import BatonError
from baton.runtime.deployment import Deployment, deploy
from baton.runtime.front import open_front
from baton.runtime.gateway.tokenizer import Tokenizer

Progress = Callable[[str, int], None]
"""Called with what goes on, and how many cases are done."""

MakeCases = Callable[[ModelInfo, Tokenizer], Sequence[Case]]
_POLL_S = 0.02
_HOST = "127.0.0.1"


async def run_arm(
    arm: Arm,
    config: BatonConfig,
    make_cases: MakeCases,
    on_ready: Callable[[ModelInfo], None],
    progress: Progress,
) -> ArmRecords:
    """Bring an arm's deployment up, run the cases, take it down, and add what its trace says."""
    with tempfile.TemporaryDirectory(prefix="baton-compare-") as folder:
        traces = Path(folder)
        deploying = deploy(config, lambda stage, _: progress(stage, 0), trace_dir=traces)
        async with deploying as deployment:
            progress("starting workers", 0)
            await deployment.wait_ready(config.cluster.start_timeout_s)
            started_s = time.monotonic()
            info = deployment.router.info
            assert info is not None, "a ready deployment has a model"
            on_ready(info)
            tokenizer = Tokenizer.load(deployment.model_path)
            async with open_front(_on_free_port(config), deployment, tokenizer) as front:
                address = (front.host, front.port)
                runner = _Runner(arm, config, deployment, address, info)
                await _guarded(deployment, runner, make_cases(info, tokenizer), progress)
            duration_s = time.monotonic() - started_s
            handoffs = deployment.router.node.counters[f"mode_{Mode.DISAGGREGATED}"]
            progress("stopping", len(runner.done))
        facts = read_traces(traces)
    return ArmRecords(
        arm=arm.name,
        mode=arm.mode,
        deterministic=is_exact(info, config),
        records=runner.records(facts),
        handoffs=handoffs,
        duration_s=duration_s,
    )


def is_exact(info: ModelInfo, config: BatonConfig) -> bool:
    """Whether bits are promised to be equal to those of one worker.

    Where decode workers keep answers and prefill workers do not, one text has rows of both: what a
    prefill recomputes agrees with what a decode kept up to rounding.
    """
    return info.deterministic and config.cache.milestone is not Milestone.DECODE


async def _guarded(
    deployment: Deployment, runner: "_Runner", cases: Sequence[Case], progress: Progress
) -> None:
    """Run the cases; a deployment that fails meanwhile ends them with its reason."""
    tasks = [
        asyncio.create_task(runner.run(cases, progress)),
        asyncio.create_task(deployment.watch()),
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _on_free_port(config: BatonConfig) -> BatonConfig:
    gateway = msgspec.structs.replace(config.gateway, host=_HOST, port=0)
    return msgspec.structs.replace(config, gateway=gateway)


class _Runner:
    """The cases of one arm, one after another; only the requests of a round run together."""

    def __init__(
        self,
        arm: Arm,
        config: BatonConfig,
        deployment: Deployment,
        address: tuple[str, int],
        info: ModelInfo,
    ) -> None:
        self._arm = arm
        self._config = config
        self._deployment = deployment
        self._address = address
        self._info = info
        self.done: list[tuple[str, Record]] = []

    def records(self, facts: TraceFacts) -> tuple[Record, ...]:
        """Everything answered, with what the trace adds."""
        layout, sizes = self._info.layout, self._config
        if sizes.block_size_of(Role.DECODE) != sizes.block_size_of(Role.PREFILL):
            layout = msgspec.structs.replace(layout, block_size=1)  # rows move, not blocks
        return tuple(with_facts(record, key, facts, layout) for key, record in self.done)

    async def run(self, cases: Sequence[Case], progress: Progress) -> None:
        """Run every case."""
        for index, case in enumerate(cases):
            progress(case.name, index)
            if case.calls:
                self.done += await call_gateway(self._address, case)
            else:
                await self._run_rounds(case)

    async def _run_rounds(self, case: Case) -> None:
        before: list[tuple[int, ...]] = []
        for number, one in enumerate(case.rounds):
            if one.restart is not None and self._arm.mode is Mode.DISAGGREGATED:
                await self._restart(one.restart)
            labels = [f"{number}.{index}" for index in range(len(one.asks))]
            prompts = [
                prompt_of(case.name, label, ask, before, self._info)
                for label, ask in zip(labels, one.asks, strict=True)
            ]
            records = await self._run_round(case.name, one, labels, prompts)
            self.done += [(f"{case.name}/{record.label}", record) for record in records]
            before = [p + r.tokens for p, r in zip(prompts, records, strict=True)]
            await self._until_copied()

    async def _run_round(
        self, case: str, one: Round, labels: list[str], prompts: list[tuple[int, ...]]
    ) -> list[Record]:
        asking = [
            self._ask(case, label, ask, prompt)
            for label, ask, prompt in zip(labels, one.asks, prompts, strict=True)
        ]
        if one.one_by_one and self._arm.mode is Mode.COLOCATED:
            return [await each for each in asking]
        return list(await asyncio.gather(*asking))

    async def _ask(self, case: str, label: str, ask: Ask, prompt: tuple[int, ...]) -> Record:
        record = await ask_router(self._deployment.router, case, label, ask, prompt)
        cluster = self._config.cluster
        if (
            self._config.cache.milestone is not Milestone.PROMPT
            or cluster.prefill > 1
            or cluster.decode > 1
        ):
            return record  # other rows are kept, or other workers hold them
        size = self._config.block_size_of(Role.DECODE)
        visible = ask.visible if ask.visible < 0 else ask.visible // size * size
        return msgspec.structs.replace(record, expected_visible=visible, expected_cached=ask.cached)

    async def _until_copied(self) -> None:
        """History that goes back after an answer is there before the next round begins."""
        while self._deployment.router.node.copies:
            await asyncio.sleep(_POLL_S)

    async def _restart(self, role: Role) -> None:
        """End the workers of a role and wait until their next lives have joined.

        They end by SIGTERM, not SIGKILL, so that their traces are complete.
        """
        fleet, timeout_s = self._deployment.router.node.fleet, self._config.cluster.start_timeout_s
        old = [view.info for view in fleet if view.info.role is role]
        for info in old:
            os.kill(info.pid, signal.SIGTERM)
        deadline_s = time.monotonic() + timeout_s
        for info in old:
            view = fleet.get(info.worker_id)
            while view is None or view.info.epoch == info.epoch:
                if time.monotonic() > deadline_s:
                    raise BatonError(f"{info.worker_id} is not back after {timeout_s:.0f} s")
                await asyncio.sleep(_POLL_S)
                view = fleet.get(info.worker_id)
