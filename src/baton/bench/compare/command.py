"""`baton compare`: the arms side by side, their comparison, and the exit code."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from baton import __version__
from baton.bench.compare.arm import DEFAULT, Arm, candidate_arms, reference_arm
from baton.bench.compare.builtin import builtin_cases
from baton.bench.compare.case import Case
from baton.bench.compare.difference import compare
from baton.bench.compare.prompts import PromptLine, prompt_cases, read_prompts
from baton.bench.compare.record import ArmRecords
from baton.bench.compare.report import Outcome, print_outcome
from baton.bench.compare.runner import is_exact, run_arm
from baton.config import BatonConfig
from baton.core.cache import Milestone
from baton.core.layout import ModelInfo
from baton.errors import BatonError, ConfigError
from baton.runtime.gateway.tokenizer import Tokenizer

_PARALLEL_ARMS = 2
"""Most of an arm's time is the start of its workers, so two arms overlap well."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to compare: a configuration, the arms, and the cases or prompts."""

    config: BatonConfig
    arms: tuple[Arm, ...]
    reference: Arm
    names: tuple[str, ...] = ()
    """Chosen cases; empty means all."""
    lines: tuple[PromptLine, ...] = ()

    def cases(self, arm: Arm, info: ModelInfo, tokenizer: Tokenizer) -> tuple[Case, ...]:
        """Cases that run on an arm; workers are restarted on the default one only."""
        every = builtin_cases(self.config.worker)
        if self.lines:
            every = prompt_cases(self.lines, tokenizer)
        return tuple(
            case
            for case in every
            if (not self.names or case.name in self.names)
            and case.num_tokens <= info.max_model_len
            and (not case.restarts or arm.name in (DEFAULT, self.reference.name))
        )


def make_plan(
    config: BatonConfig, prompts: Path | None, names: Sequence[str], every_arm: bool
) -> Plan:
    """Check what was asked for. Raises ConfigError naming an unknown case."""
    known = {case.name for case in builtin_cases(config.worker)}
    unknown = sorted(set(names) - known)
    if unknown:
        raise ConfigError(f"--case {unknown[0]}: there is no such case; see `compare --list`")
    if prompts is not None and names:
        raise ConfigError("--case chooses built-in cases; it cannot be used with --prompts")
    return Plan(
        config=config,
        arms=candidate_arms(every_arm),
        reference=reference_arm(),
        names=tuple(names),
        lines=read_prompts(prompts) if prompts else (),
    )


async def run_compare(plan: Plan, console: Console) -> Outcome:
    """Run every arm and compare each with the reference. Raises BatonError when one cannot run."""
    started_s = time.monotonic()
    run = _Run(plan)
    columns = (TextColumn("{task.fields[arm]:<28}"), BarColumn(20), MofNCompleteColumn())
    with Bars(
        *columns, TextColumn("{task.description}"), console=console, disable=not console.is_terminal
    ) as bars:
        reference, *candidates = await _gather(run, bars, console)
    cases = {arm.name: run.names[arm.name] for arm in plan.arms}
    assert run.info is not None
    return Outcome(
        version=__version__,
        model=plan.config.model.name,
        config_digest=plan.config.digest,
        deterministic=is_exact(run.info, plan.config),
        comparisons=tuple(compare(reference, one, cases[one.arm]) for one in candidates),
        skipped=run.skipped(),
        duration_s=time.monotonic() - started_s,
    )


async def _gather(run: "_Run", bars: Bars, console: Console) -> list[ArmRecords]:
    arms = (run.plan.reference, *run.plan.arms)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    run.arm(arm, bars, bars.add_task("waiting", arm=arm.name), console)
                )
                for arm in arms
            ]
    except BaseExceptionGroup as group_error:
        deliberate = [e for e in group_error.exceptions if isinstance(e, BatonError)]
        if deliberate:
            raise deliberate[0] from group_error
        raise
    return [task.result() for task in tasks]


class _Run:
    """The arms of one comparison while they run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.info: ModelInfo | None = None
        self.names: dict[str, tuple[str, ...]] = {}
        self._ready = asyncio.Event()
        self._slots = asyncio.Semaphore(_PARALLEL_ARMS)

    def skipped(self) -> tuple[str, ...]:
        """Chosen built-in cases that do not fit the model's context."""
        if self.plan.lines:
            return ()
        chosen = {case.name for case in builtin_cases(self.plan.config.worker)}
        if self.plan.names:
            chosen &= set(self.plan.names)
        return tuple(sorted(chosen - set(self.names[self.plan.reference.name])))

    async def arm(self, arm: Arm, bars: Bars, task: TaskID, console: Console) -> ArmRecords:
        """Run one arm when its turn has come."""
        async with self._slots:
            if arm.needs_layout:  # another arm's model tells it
                await self._ready.wait()
            layout = self.info.layout if self.info else None

            def make_cases(info: ModelInfo, tokenizer: Tokenizer) -> Sequence[Case]:
                cases = self.plan.cases(arm, info, tokenizer)
                self.names[arm.name] = tuple(case.name for case in cases)
                bars.update(task, total=len(cases))
                return cases

            def on_progress(text: str, done: int) -> None:
                bars.update(task, description=text, completed=done)

            config = arm.config(self.plan.config, layout)
            records = await run_arm(arm, config, make_cases, self._on_ready, on_progress)
            bars.update(task, description=f"{len(records.records)} answers")
            if not console.is_terminal:
                console.print(f"{arm.name}: {len(records.records)} answers", highlight=False)
            return records

    def _on_ready(self, info: ModelInfo) -> None:
        self.info = info
        self._ready.set()


def print_cases(config: BatonConfig, console: Console) -> None:
    """Name every built-in case and say what it is about."""
    for case in builtin_cases(config.worker):
        console.print(f"{case.name:<20} {case.about}", highlight=False, soft_wrap=True)


def milestone_plans(plan: Plan) -> list[Plan]:
    """The same comparison once with each milestone of caching, on both sides."""
    plans = []
    for milestone in Milestone:
        cache = msgspec.structs.replace(plan.config.cache, milestone=milestone)
        config = msgspec.structs.replace(plan.config, cache=cache)
        plans.append(msgspec.structs.replace(plan, config=config))
    return plans


def compare_milestones(plan: Plan, console: Console, json_out: Path | None) -> int:
    """Compare with every milestone; 0 when all is equal with each, else 1."""
    outcomes: dict[str, Outcome] = {}
    for one in milestone_plans(plan):
        name = str(one.config.cache.milestone)
        console.rule(f"cache.milestone = {name}")
        outcomes[name] = asyncio.run(run_compare(one, console))
        print_outcome(outcomes[name], console)
    _write(json_out, outcomes)
    return 0 if all(outcome.same for outcome in outcomes.values()) else 1


def compare_command(plan: Plan, console: Console, json_out: Path | None) -> int:
    """Run the plan and print the result; 0 when all is equal, else 1."""
    outcome = asyncio.run(run_compare(plan, console))
    _write(json_out, outcome)
    print_outcome(outcome, console)
    return 0 if outcome.same else 1


def _write(json_out: Path | None, outcome: object) -> None:
    if json_out is not None:
        try:
            json_out.write_bytes(msgspec.json.format(msgspec.json.encode(outcome), indent=1))
        except OSError as error:
            raise ConfigError(f"--json {json_out}: {error.strerror}") from error
