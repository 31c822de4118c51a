"""What is known without measuring: models, systems, and the sources of a data folder."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from baton.errors import ConfigError
from baton.hardware.model import MODELS, model_facts
from baton.hardware.sources import BY_FILE, BY_FORMULA, SOURCES
from baton.hardware.system import SYSTEMS, system_names

_GIB = 2**30


def listing(data: Path | None) -> dict[str, Any]:
    """As JSON."""
    return {
        "models": [
            {
                "name": fact["name"],
                "aliases": fact.get("aliases", []),
                "parameters": MODELS[fact["name"]].num_parameters,
                "active_parameters": MODELS[fact["name"]].num_active_parameters,
                "weight_nbytes": MODELS[fact["name"]].weight_nbytes,
                "token_nbytes": MODELS[fact["name"]].token_nbytes,
                "source": fact["source"],
            }
            for fact in model_facts()
        ],
        "systems": [
            {
                "name": name,
                "aliases": system_names()[name],
                "flops": system.flops,
                "memory_bytes_per_s": system.memory_bytes_per_s,
                "memory_nbytes": system.memory_nbytes,
                "intra_bytes_per_s": system.intra_bytes_per_s,
                "inter_bytes_per_s": system.inter_bytes_per_s,
                "power_w": system.power_w,
                "source": system.source,
            }
            for name, system in SYSTEMS.items()
        ],
        "predictors": [
            {"name": name, "about": text, "lacks": lacks} for name, text, lacks in predictors(data)
        ],
    }


def predictors(data: Path | None) -> list[tuple[str, str, str]]:
    """Name, what it is, and what it lacks here; empty where it can be used."""
    rows = [(BY_FILE, "a profile of `baton profile`", "needs --profile FILE")]
    for source in SOURCES:
        rows.append((source.name, source.text, _lacks(source.open, data)))
    rows.append((BY_FORMULA, "a bound from data sheets, for everything else", ""))
    return rows


def _lacks(opened: Any, data: Path | None) -> str:
    if data is None:
        return "needs --data DIR or BATON_DATA"
    try:
        opened(data)
    except ConfigError as error:
        return str(error)
    return ""


def print_listing(data: Path | None, console: Console) -> None:
    """Three tables."""
    console.print(_models(), _systems())
    table = Table("predictor", "what it is", "here", title="predictors, best first")
    for name, text, lacks in predictors(data):
        table.add_row(name, text, lacks or "yes")
    console.print(table)


def _models() -> Table:
    table = Table("model", "parameters", "active", "weights GiB", "K/V B/token", title="models")
    for name, model in MODELS.items():
        active = model.num_active_parameters
        table.add_row(
            name,
            _billions(model.num_parameters),
            _billions(active) if active != model.num_parameters else "",
            f"{model.weight_nbytes / _GIB:.1f}",
            f"{model.token_nbytes:,}",
        )
    return table


def _billions(number: int) -> str:
    return f"{number / 1e9:,.2f} B"


def _systems() -> Table:
    table = Table(
        "system", "16-bit TFLOP/s", "GB/s", "GiB", "GPUs", "intra GB/s", "inter GB/s", "W", "$/h",
        title="systems: one GPU of each",
    )  # fmt: skip
    for name, one in SYSTEMS.items():
        table.add_row(
            name,
            f"{one.flops_of(2.0)[1] / 1e12:.0f}",
            f"{one.memory_bytes_per_s / 1e9:,.0f}",
            f"{one.memory_nbytes / _GIB:.0f}",
            str(one.gpus_per_node),
            f"{one.intra_bytes_per_s / 1e9:.0f}",
            f"{one.inter_bytes_per_s / 1e9:.0f}",
            f"{one.power_w:.0f}" if one.power_w else "",
            f"{one.price_per_hour:.2f}" if one.price_per_hour is not None else "",
        )
    return table
