"""Everything that a race found, as it is written to JSON."""

import msgspec

from baton.bench.effects.effect import Effect
from baton.bench.race.arm import Arm
from baton.bench.race.cells import Cell
from baton.bench.race.standing import Standing
from baton.bench.race.streams import StreamGaps


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Attainment of one cell's requests in the simulated host beside the measured one."""

    contest: str
    arm: str
    rate: float
    measured: float
    predicted: float
    num_requests: int
    ttft_error: float
    """Median over requests of |simulated - measured| / measured."""
    tpot_error: float


class RaceResult(msgspec.Struct, frozen=True, kw_only=True):
    """One race; `cells` hold every request's record."""

    version: str
    model: str
    num_cores: int
    seed: int
    arms: tuple[Arm, ...]
    streams: tuple[StreamGaps, ...]
    standings: tuple[Standing, ...]
    predictions: tuple[Prediction, ...]
    effects: tuple[Effect, ...]
    cells: tuple[Cell, ...]
    duration_s: float
