"""Profiles in the form of Dynamo's planner: time to first token by prompt length, inter-token
latency by K/V in use and context."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from baton.errors import ConfigError
from baton.hardware.curves import Domain, Grid, Line, StepCurves, StepSide
from baton.hardware.missing import MissingCell
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.serving import ServingFacts
from baton.hardware.system import System

FILE = "dynamo-planner/h200_tp1p_tp1d.json"
_MODEL, _SYSTEM = "Llama-3.1-8B", "h200_sxm"
_MS = 1000.0
_MIN_RUNNING = 0.9
"""Points where fewer than this share of the asked sequences ran: others waited, and the latency
is not that of the batch."""


class DynamoProfilePredictor:
    """The measured profile of Llama-3.1-8B-Instruct in FP8 on one H200 with vLLM."""

    name = "dynamo"

    def __init__(self, data: Path) -> None:
        self.path = data / FILE
        if not self.path.exists():
            raise ConfigError(f"{self.path}: no such file; name the folder that holds {FILE}")
        found = _read(self.path)
        try:
            self._curves, self._kv_tokens = _lowered(found, self.path)
        except (KeyError, TypeError, IndexError) as error:
            raise ConfigError(f"{self.path}: not a planner profile: {error!r}") from error

    def lacks(self, model: ModelShape, system: System) -> str | None:
        """Why it has nothing for a model and system, or None."""
        if (model.name, model.weight_nbytes_per_param) != (_MODEL, 1.0):
            return f"it has {_MODEL}-FP8, not {model.name} of other weights"
        if system.name != _SYSTEM:
            return f"it was measured on {_SYSTEM}, not {system.name}"
        return None

    def curves(self, model: ModelShape, system: System, parallel: Parallel) -> StepCurves:
        """Raises MissingCell for anything else than one GPU of the measured kind."""
        reason = self.lacks(model, system)
        if reason is None and parallel.gpus > 1:
            reason = f"it was measured on one GPU, not with {parallel}"
        if reason:
            raise MissingCell(f"{self.name}: {reason}")
        return self._curves

    def serving(self, model: ModelShape, system: System, parallel: Parallel) -> ServingFacts:
        """Its measured K/V capacity."""
        return ServingFacts(kv_tokens=self._kv_tokens, source=FILE)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: sections prefill and decode are needed")
    return found


def _lowered(found: dict[str, Any], path: Path) -> tuple[StepCurves, int]:
    prefill, decode = found["prefill"], found["decode"]
    kv_tokens = int(np.ravel(decode["max_kv_tokens"])[0])
    lengths = [float(one) for one in prefill["prefill_isl"]]
    grid = _decode_grid(decode, kv_tokens)
    curves = StepCurves(
        sides=(
            StepSide(
                prefill_rows=Line(
                    knots=tuple(lengths),
                    values_us=tuple(_MS * one for one in prefill["prefill_ttft"]),
                ),
                decode_grid=grid,
            ),
        ),
        source=f"profile of {_MODEL}-FP8, vLLM, one {_SYSTEM} ({FILE} from ai-dynamo 1.6.1); "
        "mixed steps were not measured and count as prefill and decode after each other",
        domain=Domain(
            max_rows=max(lengths),
            max_visible=max(lengths),
            max_decodes=grid.x[-1],
            max_context=grid.y[-1],
        ),
    )
    return curves, kv_tokens


def _decode_grid(decode: dict[str, Any], kv_tokens: int) -> Grid:
    """Each context has batches of its own: its line is read at the batches of all of them."""
    lines: dict[float, list[tuple[float, float]]] = defaultdict(list)
    columns = ("x_kv_usage", "y_context_length", "z_itl", "z_thpt_per_gpu")
    for usage, context, latency, rate in zip(*(decode[name] for name in columns), strict=True):
        batch = round(usage * kv_tokens / context)
        if rate * latency / _MS >= _MIN_RUNNING * batch:
            lines[context].append((float(max(1, batch)), _MS * latency))
    batches = tuple(sorted({batch for line in lines.values() for batch, _ in line}))
    contexts = tuple(sorted(lines))
    values = tuple(
        tuple(_at(sorted(lines[context]), batch) for context in contexts) for batch in batches
    )
    return Grid(x=batches, y=contexts, values_us=values)


def _at(line: list[tuple[float, float]], at: float) -> float:
    """Linear between points; beyond the last one with the slope of its half, which is smooth."""
    x, y = np.array(line).T
    if at <= x[-1] or len(x) < 2:
        return float(np.interp(at, x, y))
    slope = max(0.0, float(np.polyfit(x[len(x) // 2 - 1 :], y[len(x) // 2 - 1 :], 1)[0]))
    return float(y[-1] + slope * (at - x[-1]))
