"""One measured run: its requests, how its engine was set up, and what each request took.

CASE.csv has a row for each request: request_id, arrival_s, prompt_tokens, output_tokens, and, where
it was measured, ttft_ms, tpot_ms and latency_ms. CASE.meta.json has the engine's arguments under
`vllm_meta` and the machine under `sim_config`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError
from baton.hardware.layers.collectives import Link
from baton.hardware.layers.cut import Cut
from baton.hardware.layers.files import number, read_rows
from baton.hardware.system import find_system

Floats = NDArray[np.float64]
_MEASURED = ("ttft_ms", "tpot_ms", "latency_ms")
_GIB = 2**30
_SUFFIX = ".meta.json"


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """vLLM's arguments, and the machine it ran on."""

    model: str
    system: str
    cut: Cut
    max_num_seqs: int
    max_batch_tokens: int
    block_size: int = 16
    num_blocks: int = 0
    """As the engine found it, of one rank; 0: not told."""
    memory_nbytes: float
    """Of one GPU, and what share of it the engine may use."""
    utilization: float
    link: Link


@dataclass(frozen=True, kw_only=True)
class Case:
    """Requests in the order of arrival."""

    name: str
    engine: Engine
    arrival_us: Floats
    num_prompt: NDArray[np.int64]
    num_output: NDArray[np.int64]
    measured: dict[str, Floats]
    """By the name of the column."""


def read_cases(folder: Path) -> list[Case]:
    """Every case of a folder. Raises ConfigError if there is none."""
    metas = sorted(folder.glob(f"*{_SUFFIX}"))
    if not metas:
        raise ConfigError(f"{folder}: no CASE{_SUFFIX}; name a folder of measured runs with --data")
    return [read_case(meta) for meta in metas]


def read_case(meta: Path) -> Case:
    """Raises ConfigError that names the file and the field."""
    name = meta.name.removesuffix(_SUFFIX)
    path = meta.with_name(f"{name}.csv")
    rows = list(read_rows(path))
    if not rows:
        raise ConfigError(f"{path}: no requests")
    columns = [column for column in _MEASURED if rows[0].get(column)]
    wanted = ("arrival_s", "prompt_tokens", "output_tokens", *columns)
    table = {column: np.array([number(path, row, column) for row in rows]) for column in wanted}
    order = np.argsort(table["arrival_s"], kind="stable")
    return Case(
        name=name,
        engine=read_engine(meta),
        arrival_us=table["arrival_s"][order] * 1e6,
        num_prompt=table["prompt_tokens"][order].astype(np.int64),
        num_output=table["output_tokens"][order].astype(np.int64),
        measured={column: table[column][order] for column in columns},
    )


def read_engine(meta: Path) -> Engine:
    """Raises ConfigError that names the file and the field."""
    try:
        found = json.loads(meta.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{meta}: cannot read the run's settings: {error}") from error
    fields = _Fields(meta, found)
    arguments = fields.section("vllm_meta", "engine_kwargs")
    machine = fields.section("sim_config")
    instance = fields.section("sim_config", "nodes", 0, "instances", 0)
    memory = instance.get("npu_mem") or {}
    facts = found["vllm_meta"].get("kv_cache")
    blocks = facts.get("num_gpu_blocks") if isinstance(facts, Mapping) else None
    return Engine(
        model=str(arguments.get("model") or instance.get("model_name")),
        system=str(instance.get("hardware")),
        cut=Cut(
            tp=int(fields.number(arguments, "tensor_parallel_size", 1)),
            dp=int(fields.number(arguments, "data_parallel_size", 1)),
            is_expert_parallel=bool(arguments.get("enable_expert_parallel")),
        ),
        max_num_seqs=int(fields.number(arguments, "max_num_seqs", 256)),
        max_batch_tokens=int(fields.number(arguments, "max_num_batched_tokens", 2048)),
        block_size=int(fields.number(arguments, "block_size", 16)),
        num_blocks=int(blocks or 0),
        memory_nbytes=fields.number(memory, "mem_size", _memory_gib(instance)) * _GIB,
        utilization=fields.number(memory, "mem_util", 0.9),
        link=Link(
            bytes_per_us=fields.number(machine, "link_bw") * 1e3,
            latency_us=fields.number(machine, "link_latency") / 1e3,
        ),
    )


def _memory_gib(instance: Mapping[str, Any]) -> float | None:
    """Of the machine by its name, for a run that does not say."""
    try:
        return find_system(str(instance.get("hardware"))).memory_nbytes / _GIB
    except ConfigError:
        return None


class _Fields:
    """A JSON document, and errors that name where something is missing in it."""

    def __init__(self, path: Path, document: Any) -> None:
        self._path, self._document = path, document

    def section(self, *keys: str | int) -> Mapping[str, Any]:
        at = self._document
        for key in keys:
            try:
                at = at[key]
            except (KeyError, IndexError, TypeError):
                place = ".".join(str(one) for one in keys)
                raise ConfigError(f"{self._path}: {place} is missing") from None
        if not isinstance(at, Mapping):
            raise ConfigError(f"{self._path}: {'.'.join(map(str, keys))} must be an object")
        return at

    def number(self, section: Mapping[str, Any], key: str, default: float | None = None) -> float:
        value = section.get(key)
        if isinstance(value, list) and value:
            value = value[0]
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{self._path}: {key} is {value!r}; a number is needed")
        return float(value)
