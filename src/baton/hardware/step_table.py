"""What steps of one model on one system cost, as a table for a person or as JSON."""

from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from baton.errors import ConfigError
from baton.hardware.curves import StepCurves
from baton.hardware.instance import Instance, instance_of
from baton.hardware.memory import check_utilization
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.predictor import Choice, choose_predictor
from baton.hardware.system import System
from baton.policy.phase_cost import PrefillRows

PROMPTS = (128, 512, 1024, 2048, 4096, 8192, 16384)
BATCHES = (1, 8, 32, 64, 128, 256)
CONTEXTS = (512, 2048, 8192)
_GIB = 2**30


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which steps, by which source."""

    model: ModelShape
    system: System
    parallel: Parallel
    data: Path | None = None
    profile: Path | None = None
    predictor: str | None = None
    utilization: float = 0.9


class StepTable(msgspec.Struct, frozen=True, kw_only=True):
    """Times of one instance in milliseconds, a whole step over all stages."""

    model: str
    system: str
    parallel: str
    predictor: str
    warning: str
    """Where nothing was measured."""
    source: str
    is_extrapolated: bool
    kv_tokens: int | None
    """None where it does not fit; `kv_source` says why."""
    kv_source: str
    prefill_ms: dict[int, float]
    decode_ms: dict[int, dict[int, float]]
    """By context, then by batch."""
    outside: list[str]
    """Cells beyond what the source measured."""


def step_table(asked: Asked) -> tuple[StepTable, Choice]:
    """Raises ConfigError where no source has it."""
    check_utilization(asked.utilization)
    choice = choose_predictor(
        asked.model,
        asked.system,
        data=asked.data,
        profile=asked.profile,
        name=asked.predictor,
    )
    curves = choice.predictor.curves(asked.model, asked.system, asked.parallel)
    instance, problem = _instance(asked, choice)
    outside: list[str] = []
    table = StepTable(
        model=asked.model.name,
        system=asked.system.name,
        parallel=str(asked.parallel),
        predictor=choice.predictor.name,
        warning=choice.warning,
        source=curves.source,
        is_extrapolated=curves.is_extrapolated,
        kv_tokens=instance.kv_tokens if instance else None,
        kv_source=instance.kv_source if instance else problem,
        prefill_ms={num: _prefill_ms(curves, num, outside) for num in PROMPTS},
        decode_ms={
            length: {batch: _decode_ms(curves, batch, length, outside) for batch in BATCHES}
            for length in CONTEXTS
        },
        outside=outside,
    )
    return table, choice


def _instance(asked: Asked, choice: Choice) -> tuple[Instance | None, str]:
    try:
        found = instance_of(
            choice.predictor,
            asked.model,
            asked.system,
            asked.parallel,
            utilization=asked.utilization,
        )
    except ConfigError as error:
        return None, str(error)
    return found, ""


def _prefill_ms(curves: StepCurves, num_rows: int, outside: list[str]) -> float:
    domain = curves.domain
    if num_rows > min(domain.max_rows, domain.max_visible):
        outside.append(f"prefill {num_rows}")
    one = PrefillRows(num_rows=num_rows)
    return curves.step_us([one], []) * curves.pipeline / 1000


def _decode_ms(curves: StepCurves, batch: int, length: int, outside: list[str]) -> float:
    if batch > curves.domain.max_decodes or length > curves.domain.max_context:
        outside.append(f"decode {batch} x {length}")
    return curves.step_us([], [length] * batch) * curves.pipeline / 1000


def print_table(found: StepTable, choice: Choice, model: ModelShape, console: Console) -> None:
    """Source first, then both phases and the memory."""
    mark = " [yellow](extrapolated)[/]" if found.is_extrapolated else ""
    console.print(f"{found.model} on {found.system}, {found.parallel}: {found.predictor}{mark}")
    console.print(f"  {found.source}")
    console.print(f"  chosen: {choice.reason}")
    if found.warning:
        console.print(f"  WARNING: {found.warning}", style="yellow", highlight=False)
    for name, reason in choice.passed_over:
        console.print(f"  not {name}: {reason}", style="dim")
    console.print(
        f"  {model.num_parameters / 1e9:.2f} billion parameters, "
        f"{model.weight_nbytes / _GIB:.1f} GiB of weights, "
        f"K/V {model.token_nbytes:,} B per token"
    )
    held = "none" if found.kv_tokens is None else f"{found.kv_tokens:,} tokens"
    console.print(f"  K/V capacity of an instance: {held} ({found.kv_source})")
    console.print(_prefill_table(found), _decode_table(found))
    if found.outside:
        console.print("  * beyond what the source measured", style="dim")


def _prefill_table(found: StepTable) -> Table:
    table = Table("prompt tokens", "ms", "tokens/s", title="prefill step", title_justify="left")
    for num, ms in found.prefill_ms.items():
        mark = "*" if f"prefill {num}" in found.outside else ""
        table.add_row(f"{num}{mark}", f"{ms:.2f}", f"{num / ms * 1000:,.0f}")
    return table


def _decode_table(found: StepTable) -> Table:
    table = Table("context", title="decode step, ms by batch", title_justify="left")
    for batch in BATCHES:
        table.add_column(str(batch), justify="right")
    for length, row in found.decode_ms.items():
        cells = [
            f"{ms:.2f}{'*' if f'decode {batch} x {length}' in found.outside else ''}"
            for batch, ms in row.items()
        ]
        table.add_row(str(length), *cells)
    return table
