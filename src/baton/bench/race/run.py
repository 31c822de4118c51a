"""A whole race: streams under a burst, then every contest, then who won."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from baton import __version__
from baton.bench.effects.effect import Effect
from baton.bench.race import verdicts
from baton.bench.race.arm import Arm, arms, chunked
from baton.bench.race.calibration import Calibration, calibrate
from baton.bench.race.cells import Cell, Schedule, run_contest
from baton.bench.race.contest import Contest
from baton.bench.race.field import Lane, open_lanes
from baton.bench.race.neighbour import busy_core
from baton.bench.race.plan import RacePlan
from baton.bench.race.prediction import by_threads, predict, require_checkpoint
from baton.bench.race.result import Prediction, RaceResult
from baton.bench.race.standing import Standing, stand
from baton.bench.race.streams import BURST_PROMPTS, StreamGaps, measure_streams
from baton.config import BatonConfig
from baton.errors import BatonError
from baton.goodput.slo import SLOTargets, parse_goodput
from baton.policy.service_profile import ServiceProfile
from baton.runtime.model_preparation import prepare_model

ALONE: tuple[int, ...] = ()
Say = Callable[[str], None]
Rounds = dict[str, list[StreamGaps]]


async def run_race(
    config: BatonConfig,
    plan: RacePlan,
    contests: Sequence[Contest],
    profiles: Sequence[ServiceProfile],
    folder: Path,
    say: Say,
) -> RaceResult:
    """Run it. Raises BatonError when an arm cannot start or a lone request fails."""
    started_s = time.monotonic()
    cores = sorted(os.sched_getaffinity(0))
    field = arms(len(cores), plan.budget)
    model_path = await prepare_model(config.model.name, lambda stage, fraction: None)
    require_checkpoint(profiles, model_path)
    say(f"starting {len(field)} arms on {len(cores)} cores")
    rounds: Rounds = defaultdict(list)
    cells: list[Cell] = []
    standings: list[Standing] = []
    async with open_lanes(field, config, folder) as lanes:
        if plan.with_streams:
            try:
                await _streams(lanes, config, plan, model_path, cores, folder, rounds, say)
            except BatonError as error:  # the contests do not depend on it
                say(f"live streams are left out: {error}")
                rounds.clear()
        for contest in contests:
            measured, standing = await _contest(lanes, field, contest, plan, say)
            cells += measured
            standings.append(standing)
            say(standing.sentence)
    predictions = predict(
        cells,
        standings,
        contests,
        field,
        config,
        _schedule(plan),
        by_threads(profiles),
        say,
    )
    return RaceResult(
        version=__version__,
        model=config.model.name,
        num_cores=len(cores),
        seed=plan.seed,
        arms=field,
        streams=tuple(one for every in rounds.values() for one in every),
        standings=tuple(standings),
        predictions=predictions,
        effects=tuple(_effects(rounds, standings, predictions, plan)),
        cells=tuple(cells),
        duration_s=time.monotonic() - started_s,
    )


async def _contest(
    lanes: dict[str, Lane], field: Sequence[Arm], contest: Contest, plan: RacePlan, say: Say
) -> tuple[list[Cell], Standing]:
    calibration = await calibrate(lanes["split"], contest, plan.seed)
    targets = _targets(plan, contest, calibration)
    capacity = calibration.capacity(contest.mean_output_tokens)
    rates = plan.rates or tuple(round(capacity * share, 3) for share in contest.load_fractions)
    say(
        f"{contest.name}: unloaded split {calibration.mean_ttft_us / 1e3:.0f} ms TTFT, "
        f"{calibration.mean_tpot_us / 1e3:.1f} ms TPOT; targets {targets} ms"
    )
    cells = await run_contest(lanes, contest, rates, targets, _schedule(plan), say)
    margin_us = plan.safety_margin_ms * 1e3
    standing = stand(contest, field, cells, targets, calibration, safety_margin_us=margin_us)
    return cells, standing


def _schedule(plan: RacePlan) -> Schedule:
    return Schedule(repetitions=plan.repetitions, duration_s=plan.duration_s, seed=plan.seed)


def _targets(plan: RacePlan, contest: Contest, calibration: Calibration) -> SLOTargets:
    if plan.goodput:
        return parse_goodput(plan.goodput, plan.attainment)
    ttft_scale = contest.ttft_scale or plan.ttft_scale
    return calibration.targets(ttft_scale, plan.tpot_scale, plan.attainment)


async def _streams(
    lanes: dict[str, Lane],
    config: BatonConfig,
    plan: RacePlan,
    model_path: Path,
    cores: Sequence[int],
    folder: Path,
    rounds: Rounds,
    say: Say,
) -> None:
    """X1 and X2. The decode-only engine has one core, and the next one is kept busy."""
    alone = Arm(name=verdicts.DECODE_ONLY, title="decode-only beside a busy core", mixed=1)
    others = [
        chunked(len(cores), budget, verdicts.chunk_arm(budget))
        for budget in plan.budgets
        if budget != plan.budget
    ]
    async with open_lanes((alone, *others), config, folder) as more:
        for repetition in range(plan.repetitions):
            for name in (verdicts.PREFILL_FIRST, "split"):
                await _stream(lanes[name], plan, repetition, rounds, say)
            async with busy_core(model_path, cores[1]):
                await _stream(more[alone.name], plan, repetition, rounds, say, ALONE)
        for arm in others:
            await _stream(more[arm.name], plan, 0, rounds, say)
    if plan.budget in plan.budgets:
        await _stream(lanes["colocated-chunked"], plan, 0, rounds, say)
        rounds[verdicts.chunk_arm(plan.budget)] = rounds.pop("colocated-chunked")


async def _stream(
    lane: Lane,
    plan: RacePlan,
    repetition: int,
    rounds: Rounds,
    say: Say,
    burst: Sequence[int] = BURST_PROMPTS,
) -> None:
    # Streams of a burst are interrupted at its end; without one they run to theirs.
    num_tokens = plan.stream_tokens if burst else plan.alone_tokens
    seed = plan.seed + repetition
    gaps = await measure_streams(lane, num_tokens=num_tokens, burst=burst, seed=seed)
    rounds[lane.arm.name].append(gaps)
    say(
        f"live streams, repetition {repetition + 1}: {lane.arm.title}: gap "
        f"{gaps.median_us / 1e3:.0f} ms median, {gaps.p99_us / 1e3:.0f} ms p99"
    )


def _effects(
    rounds: Rounds,
    standings: Sequence[Standing],
    predictions: Sequence[Prediction],
    plan: RacePlan,
) -> list[Effect]:
    effects = []
    if rounds:
        effects += [verdicts.stall(rounds), verdicts.chunking(rounds, plan.budgets)]
    elif plan.with_streams:
        effects.append(verdicts.no_streams())
    for standing in standings:
        if standing.contest == "short-prompt":
            effects.append(verdicts.splitting_can_lose(standing))
        else:
            effects += [verdicts.crossover(standing), verdicts.advantage(standing)]
    if predictions:
        effects.append(verdicts.fidelity(predictions))
    return effects


def encode_result(result: RaceResult) -> bytes:
    """JSON for people and programs."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1)
