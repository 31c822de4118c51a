"""Every cell of a race in the simulated host: the same nodes and policies, profiled times.

What it predicts is compared with what was measured; nothing is fitted to the race.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import msgspec

from baton.bench.race.arm import Arm
from baton.bench.race.cells import Cell, Schedule, cell_seed
from baton.bench.race.contest import Contest
from baton.bench.race.result import Prediction
from baton.bench.race.standing import Standing
from baton.config import BatonConfig
from baton.engine.identity import checkpoint_hash
from baton.errors import ConfigError
from baton.goodput.attainment import judge_each
from baton.goodput.record import RequestRecord
from baton.goodput.slo import SLOTargets
from baton.policy.service_profile import ServiceProfile
from baton.sim.replay.replay import replay
from baton.sim.replay.setup import Delays, ReplaySetup

_MAX_MODEL_LEN = 8192


def by_threads(profiles: Sequence[ServiceProfile]) -> dict[int, ServiceProfile]:
    """Profiles by the threads of the engine they measured; raises ConfigError on two for one."""
    found: dict[int, ServiceProfile] = {}
    for profile in profiles:
        threads = profile.subject.hardware.num_threads
        if threads in found:
            raise ConfigError(
                f"--profile: two profiles of an engine of {threads} threads; keep one"
            )
        found[threads] = profile
    return found


def require_checkpoint(profiles: Sequence[ServiceProfile], model_path: Path) -> None:
    """Raise ConfigError unless every profile was measured with the model in `model_path`."""
    wanted = checkpoint_hash(model_path) if profiles else ""
    for profile in profiles:
        identity = profile.subject.identity
        if identity.checkpoint_hash != wanted:
            raise ConfigError(
                f"--profile: measured with another model, {identity.model!r} of checkpoint "
                f"{identity.checkpoint_hash}, and {model_path.name!r} is {wanted}; "
                "measure it with `baton profile`"
            )


def predict(
    cells: Sequence[Cell],
    standings: Sequence[Standing],
    contests: Sequence[Contest],
    arms: Sequence[Arm],
    config: BatonConfig,
    schedule: Schedule,
    profiles: dict[int, ServiceProfile],
    say: Callable[[str], None],
) -> tuple[Prediction, ...]:
    """One prediction for each arm and rate that was measured and whose engine has a profile."""
    found = []
    targets = {standing.contest: standing.targets for standing in standings}
    for contest in contests:
        for arm in arms:
            profile = profiles.get(arm.threads)
            if profile is None:
                continue
            setup = ReplaySetup.from_config(arm.configure(config), max_model_len=_MAX_MODEL_LEN)
            setup = msgspec.structs.replace(setup, delays=Delays.of(profile))
            mine = [c for c in cells if (c.arm, c.contest) == (arm.name, contest.name)]
            for rate in sorted({cell.rate for cell in mine if not cell.is_skipped}):
                here = [cell for cell in mine if cell.rate == rate and not cell.is_skipped]
                found.append(
                    _predict(here, contest, targets[contest.name], setup, schedule, profile)
                )
    if profiles:
        lacking = sorted({arm.name for arm in arms if arm.threads not in profiles})
        note = f"; no profile for the threads of {', '.join(lacking)}" if lacking else ""
        say(f"simulated {len(found)} pairs of arm and rate{note}")
    return tuple(found)


def _predict(
    cells: Sequence[Cell],
    contest: Contest,
    targets: SLOTargets,
    setup: ReplaySetup,
    schedule: Schedule,
    profile: ServiceProfile,
) -> Prediction:
    measured: list[bool] = []
    predicted: list[bool] = []
    pairs: list[tuple[RequestRecord, RequestRecord]] = []
    for cell in cells:
        workload = contest.cell(cell.rate, schedule.duration_s, schedule.seed + cell.repetition)
        seeded = msgspec.structs.replace(setup, seed=cell_seed(schedule, cell.repetition, 0))
        records = replay(workload, seeded, profile)
        predicted += [one.all for one in judge_each(records, targets)]
        measured += cell.met(targets)
        pairs += zip(cell.records, records, strict=True)
    return Prediction(
        contest=contest.name,
        arm=cells[0].arm,
        rate=cells[0].rate,
        measured=sum(measured) / len(measured),
        predicted=sum(predicted) / len(predicted),
        num_requests=len(measured),
        ttft_error=_median_error([(a.ttft_us, b.ttft_us) for a, b in pairs]),
        tpot_error=_median_error([(a.tpot_us, b.tpot_us) for a, b in pairs]),
    )


def _median_error(pairs: Sequence[tuple[float | None, float | None]]) -> float:
    """Of pairs that both have the clock; 0 when none has it."""
    errors = [abs(b - a) / a for a, b in pairs if a and b is not None]
    return median(errors) if errors else 0.0
