"""DistServe's fitted step times: OPT on A100-80GB, its own engine and vLLM of 2023.

Prefill is a + b tokens + c (sum of squared lengths), divided over the pipeline's stages, and a
millisecond for each stage; decode is a + b (tokens held) + c (batch), in two pieces that change at
a batch of 95. All are milliseconds.
"""

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from baton.errors import ConfigError
from baton.hardware.curves import Grid, Line, StepCurves, StepSide
from baton.hardware.missing import MissingCell
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.serving import ServingFacts
from baton.hardware.system import System

FOLDER = "distserve"
ENGINES = ("distserve", "vllm")
SYSTEM = "a100_sxm"
STAGE_US = 1000.0
"""Added to a prefill step of each stage, for every stage of the pipeline."""
DISPATCH_US, DISPATCH_TOKEN_US = 2000.0, 0.1
"""What DistServe's simulator adds at the head of a pipeline: for a batch, and for each token."""
_MS = 1000.0


class DistServePredictor:
    """One engine's fits; a model that only the older edition has is taken from there.

    With `interpolates`, a TP between two fitted ones has coefficients between theirs, and is marked
    extrapolated; else it is refused.
    """

    def __init__(
        self, data: Path, engine: str = "distserve", *, interpolates: bool = False
    ) -> None:
        if engine not in ENGINES:
            raise ConfigError(f"engine {engine!r}: DistServe fitted {' and '.join(ENGINES)}")
        self.name = "distserve" if engine == "distserve" else f"distserve-{engine}"
        self.name += "-interpolated" if interpolates else ""
        self.engine, self.interpolates = engine, interpolates
        folder = data / FOLDER
        current = folder / f"profiler-a100-80g.{engine}.json"
        older = folder / "history" / f"profiler-a100-80g.{engine}.with-opt175b.json"
        self._fits: dict[str, tuple[Mapping[str, Any], str]] = {}
        for path in (older, current):
            if path.exists():
                self._fits |= {_key(name): (fit, path.name) for name, fit in _read(path).items()}
        if not self._fits:
            raise ConfigError(f"{current}: no such file; name the folder that holds {FOLDER}/")
        self._tokens = _capacities(folder / "max_num_tokens.csv")

    def lacks(self, model: ModelShape, system: System) -> str | None:
        """Why it has nothing for a model and system, or None."""
        if system.name != SYSTEM:
            return f"it was fitted on {SYSTEM}, not {system.name}"
        if _key(model.name) not in self._fits:
            return f"it has {', '.join(sorted(self._fits))}, not {model.name}"
        if model.weight_nbytes_per_param != 2.0:
            return "it was fitted with weights in 16 bits"
        return None

    def curves(self, model: ModelShape, system: System, parallel: Parallel) -> StepCurves:
        """Exact. Raises MissingCell for a model, system or TP that was not fitted."""
        if reason := self.lacks(model, system):
            raise MissingCell(f"{self.name}: {reason}")
        by_tp, file = self._fits[_key(model.name)]
        fit, pp = self._fit(by_tp, model, parallel), parallel.pp
        a, b, c = (_MS * value / pp for value in fit["prefill"])
        # A chunk of n rows after v adds (v + n)^2 - v^2 = 2 pairs - n to the sum of squares.
        side = StepSide(
            prefill_us=a + STAGE_US * pp,
            prefill_rows=Line(knots=(0.0, 1.0), values_us=(0.0, b - c)),
            pair_us=2.0 * c,
            decode_grid=_decode_grid(fit, pp),
        )
        return StepCurves(
            sides=(side,),
            source=f"DistServe's fit of {model.name} TP{parallel.tp} on A100-80GB "
            f"({FOLDER}/{file}), divided over {pp} stages",
            pipeline=pp,
            is_extrapolated=str(parallel.tp) not in by_tp,
        )

    def _fit(
        self, by_tp: Mapping[str, Any], model: ModelShape, parallel: Parallel
    ) -> Mapping[str, Any]:
        if str(parallel.tp) in by_tp:
            return cast(Mapping[str, Any], by_tp[str(parallel.tp)])
        known = sorted(int(tp) for tp in by_tp)
        if not (self.interpolates and known[0] < parallel.tp < known[-1]):
            raise MissingCell(
                f"{self.name}: {model.name} was fitted for TP {', '.join(map(str, known))}, "
                f"not {parallel.tp}"
            )
        below = max(tp for tp in known if tp < parallel.tp)
        above = min(tp for tp in known if tp > parallel.tp)
        share = math.log(parallel.tp / below) / math.log(above / below)
        return _between(by_tp[str(below)], by_tp[str(above)], share)

    def serving(self, model: ModelShape, system: System, parallel: Parallel) -> ServingFacts:
        """Its published K/V capacities, and what its simulator adds to every batch."""
        tokens = self._tokens.get((_key(model.name), parallel.tp, parallel.pp))
        return ServingFacts(
            kv_tokens=tokens,
            step_overhead_us=DISPATCH_US,
            source=f"{FOLDER}/max_num_tokens.csv" if tokens else "",
        )


def _between(below: Mapping[str, Any], above: Mapping[str, Any], share: float) -> dict[str, Any]:
    """Linear in the logarithm of TP, as `share` has it; both have one batch where pieces change."""
    fit = dict(below)
    for part in ("prefill", "decoding_smallbs", "decoding_largebs"):
        pairs = zip(below[part], above[part], strict=True)
        fit[part] = [low + share * (high - low) for low, high in pairs]
    return fit


def _decode_grid(fit: Mapping[str, Any], pp: int) -> Grid:
    """Both pieces are bilinear in the batch and its mean length, so that four knots are exact."""
    split = float(fit["decoding_large_small_bs_threshold"])
    lengths = (0.0, 1000.0)

    def value(batch: float, length: float) -> float:
        a, b, c = fit["decoding_smallbs" if batch < split else "decoding_largebs"]
        return float(_MS * (a + b * batch * length + c * batch) / pp)

    batches = (1.0, split - 1.0, split, split + 1.0)
    rows = tuple(tuple(value(batch, length) for length in lengths) for batch in batches)
    return Grid(x=batches, y=lengths, values_us=rows)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: fits by model are needed")
    return found


def _capacities(path: Path) -> dict[tuple[str, int, int], int]:
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {
            (_key(row["model"]), int(row["tp"]), int(row["pp"])): int(row["max_num_tokens"])
            for row in csv.DictReader(file)
        }


def _key(name: str) -> str:
    return name.rsplit("/", 1)[-1].lower()
