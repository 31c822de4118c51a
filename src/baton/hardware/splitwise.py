"""Splitwise's measured table: Llama-2-70B and BLOOM-176B on DGX-A100, DGX-H100 and a capped one.

A prompt step is the median time of its total tokens, a mixed step that of all its rows times 1.1.
A decode step is read in one of two ways. "batch" is what was measured: the median by batch size,
and the cost of context from the runs of a single sequence. "batch_tokens" is what the authors'
simulator does: it enters a table by (prompt x batch) with the batch size alone, so that a step
costs the same for 1 and for 64 sequences.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from baton.errors import ConfigError
from baton.hardware.curves import Domain, Grid, Line, StepCurves, StepSide
from baton.hardware.missing import MissingCell
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.system import System

TABLE = "splitwise-sim/perf_model.csv"
HARDWARE = {"a100_sxm": "a100-80gb", "h100_sxm": "h100-80gb", "h100_sxm_cap": "h100-80gb-pcap"}
"""Our systems by the table's names; the last one has its GPUs capped at half their power."""
MIXED_FACTOR = 1.1
DECODES = ("batch", "batch_tokens")
_MS = 1000.0
_MODELS = {"bloom-176b": "bloom-176b", "llama-2-70b": "llama2-70b"}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the table, in milliseconds; power is a share of the limit, 0 unmeasured."""

    prompt_size: int
    batch_size: int
    token_size: int
    prompt_time: float
    token_time: float
    peak_power: float
    average_power: float

    @property
    def batch_tokens(self) -> int:
        """Prompt tokens of the whole batch."""
        return self.prompt_size * self.batch_size


Cell = tuple[str, str, int]
"""The table's model, hardware and tensor parallelism."""


class SplitwisePredictor:
    """Lowers the table; `decode` is one of `DECODES`."""

    def __init__(self, data: Path, decode: str = "batch") -> None:
        if decode not in DECODES:
            raise ConfigError(f"decode {decode!r}: use one of {', '.join(DECODES)}")
        self.name = "splitwise" if decode == "batch" else "splitwise-reference"
        self.decode = decode
        self._rows = _read(data / TABLE)

    def lacks(self, model: ModelShape, system: System) -> str | None:
        """Why it has nothing for a model and system, or None."""
        if system.name not in HARDWARE:
            return f"it was measured on {', '.join(HARDWARE)}, not {system.name}"
        if model.name.lower() not in _MODELS:
            return f"it has {', '.join(_MODELS)}, not {model.name}"
        if model.weight_nbytes_per_param != 2.0:
            return "it was measured with weights in 16 bits"
        return None

    def rows(self, model: ModelShape, system: System, parallel: Parallel) -> list[Row]:
        """The runs of one cell. Raises MissingCell that names what there is."""
        if reason := self.lacks(model, system):
            raise MissingCell(f"{self.name}: {reason}")
        cell = (_MODELS[model.name.lower()], HARDWARE[system.name], parallel.tp)
        if parallel.pp > 1 or cell not in self._rows:
            known = sorted(tp for name, gpu, tp in self._rows if (name, gpu) == cell[:2])
            raise MissingCell(
                f"{self.name}: {model.name} on {system.name} was measured with TP "
                f"{', '.join(map(str, known))} and PP 1, not with {parallel}"
            )
        return self._rows[cell]

    def curves(self, model: ModelShape, system: System, parallel: Parallel) -> StepCurves:
        """Medians, linear between them and on beyond them."""
        rows = self.rows(model, system, parallel)
        prompt = medians((row.batch_tokens, row.prompt_time) for row in rows)
        # The grid has batches up to 64 of prompts of 512; single prompts reach 8192.
        most = max(row.batch_tokens for row in rows)
        reads_batch = self.decode == "batch"
        side = StepSide(
            prefill_rows=_line(prompt),
            decode_grid=_by_batch(rows) if reads_batch else _by_batch_tokens(rows),
        )
        batches = max(row.batch_size for row in rows)
        how = "batch and context" if reads_batch else "batch tokens, as its simulator does"
        return StepCurves(
            sides=(side,),
            source=f"Splitwise's medians of {model.name} TP{parallel.tp} on {system.name} "
            f"({TABLE}), decode by {how}",
            mixed_factor=MIXED_FACTOR,
            mixed_as_prefill=True,
            domain=Domain(
                max_rows=most,
                max_visible=max(row.prompt_size for row in rows),
                max_decodes=batches,
                max_context=max(row.prompt_size + row.token_size for row in rows),
            ),
        )

    def average_power(
        self, model: ModelShape, system: System, parallel: Parallel
    ) -> dict[int, float]:
        """Share of the power limit over a whole run, by batch tokens; empty where not measured."""
        rows = self.rows(model, system, parallel)
        return medians((r.batch_tokens, r.average_power) for r in rows if r.average_power)

    def peak_power(self, model: ModelShape, system: System, parallel: Parallel) -> dict[int, float]:
        """The same of the highest moment, which is the prompt's."""
        rows = self.rows(model, system, parallel)
        return medians((r.batch_tokens, r.peak_power) for r in rows if r.peak_power)


def medians(pairs: Iterable[tuple[int, float]]) -> dict[int, float]:
    """By key, ascending."""
    groups: dict[int, list[float]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return {key: median(groups[key]) for key in sorted(groups)}


def _line(by_tokens: dict[int, float]) -> Line:
    return Line(
        knots=tuple(float(key) for key in by_tokens),
        values_us=tuple(_MS * value for value in by_tokens.values()),
    )


def _by_batch_tokens(rows: Sequence[Row]) -> Grid:
    """The reference's: one number of the batch, whatever it sees."""
    line = _line(medians((row.batch_tokens, row.token_time) for row in rows))
    return Grid(x=line.knots, y=(0.0,), values_us=tuple((value,) for value in line.values_us))


def _by_batch(rows: Sequence[Row]) -> Grid:
    """The median of each batch size, moved to any context by the slope of single sequences.

    A run's time of a token is a mean over its answer, so it stands at half of it.
    """
    slope_us = _context_slope(rows)
    groups: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        groups[row.batch_size].append((row.prompt_size + row.token_size / 2, row.token_time))
    batches = tuple(sorted(groups))
    lengths = (0.0, 8192.0)
    values = []
    for batch in batches:
        bare = median(_MS * t - slope_us * batch * length for length, t in groups[batch])
        values.append(tuple(bare + slope_us * batch * length for length in lengths))
    return Grid(x=tuple(map(float, batches)), y=lengths, values_us=tuple(values))


def _context_slope(rows: Sequence[Row]) -> float:
    """Microseconds of one more visible token, from medians of single sequences."""
    single: dict[tuple[int, int], list[float]] = defaultdict(list)
    for row in rows:
        if row.batch_size == 1:
            single[row.prompt_size, row.token_size].append(row.token_time)
    lengths = np.array([prompt + tokens / 2 for prompt, tokens in single])
    times = np.array([_MS * median(values) for values in single.values()])
    slope = np.polyfit(lengths, times, 1)[0]
    return max(0.0, float(slope))


def _read(path: Path) -> dict[Cell, list[Row]]:
    if not path.exists():
        raise ConfigError(f"{path}: no such file; name the folder that holds {TABLE}")
    cells: dict[Cell, list[Row]] = defaultdict(list)
    with path.open(newline="") as file:
        for line, raw in enumerate(csv.DictReader(file), start=2):
            try:
                cell, row = _parsed(raw)
            except (KeyError, TypeError, ValueError) as error:
                raise ConfigError(f"{path}:{line}: not a row of the table: {error}") from error
            cells[cell].append(row)
    return cells


def _parsed(raw: dict[str, str]) -> tuple[Cell, Row]:
    row = Row(
        prompt_size=int(raw["prompt_size"]),
        batch_size=int(raw["batch_size"]),
        token_size=int(raw["token_size"]),
        prompt_time=float(raw["prompt_time"]),
        token_time=float(raw["token_time"]),
        peak_power=float(raw["peak_power"]),
        average_power=float(raw["average_power"]),
    )
    return (raw["model"], raw["hardware"], int(raw["tensor_parallel"])), row


def prompt_throughput(by_tokens: dict[int, float]) -> dict[int, float]:
    """Tokens per second of a prompt step, by its tokens."""
    return {tokens: tokens / ms * 1000 for tokens, ms in by_tokens.items()}
