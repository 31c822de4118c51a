"""Well-known models by name, and any model by the `config.json` of its checkpoint."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from baton.errors import ConfigError
from baton.hardware.model_config import shape_of
from baton.hardware.model_shape import PRECISIONS, LinearAttention, ModelShape
from baton.hardware.nearest import nearest

__all__ = ["MODELS", "PRECISIONS", "LinearAttention", "ModelShape", "find_model", "model_facts"]

_VARIANT = re.compile(
    r"-(hf|instruct|chat|base|thinking|it|\d{4}|v\d+(\.\d+)?|fp16|bf16|bfloat16)$"
)
_PRECISION = re.compile(r"-(fp8|nvfp4|fp4|mxfp4|int4|awq|gptq|int8)(-[a-z]+)*$")
_STORED = {"fp4": "nvfp4", "awq": "int4", "gptq": "int4"}


class _Models(Mapping[str, ModelShape]):
    """Read from the package's table when first asked for."""

    def __getitem__(self, name: str) -> ModelShape:
        return _shapes()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_shapes())

    def __len__(self) -> int:
        return len(_shapes())


MODELS: Mapping[str, ModelShape] = _Models()


def find_model(name: str | Path) -> ModelShape:
    """By name, by a name with its owner and variant ("meta-llama/Llama-3.1-8B-Instruct"), or by
    the path of a `config.json` or of the folder that holds one.

    A suffix such as -FP8 or -NVFP4 stores the linear layers so. Raises ConfigError that lists the
    nearest names.
    """
    path = Path(name)
    if path.suffix == ".json" or os.path.isfile(path / "config.json"):
        return _from_file(path)
    found, precision = _known(str(name))
    if found is None:
        close = ", ".join(nearest(str(name).rsplit("/", 1)[-1], MODELS))
        raise ConfigError(
            f"model {str(name)!r} is not known; nearest: {close}; or give the path of its "
            "config.json"
        )
    shape = MODELS[found]
    return shape.quantised(weights=precision) if precision else shape


@cache
def model_facts() -> tuple[dict[str, Any], ...]:
    """The table as it is stored: name, aliases, source, published totals, configuration."""
    text = (files("baton.hardware") / "facts" / "models.json").read_text()
    return tuple(json.loads(text))


@cache
def _shapes() -> dict[str, ModelShape]:
    return {one["name"]: _shape(one) for one in model_facts()}


def _shape(fact: Mapping[str, Any]) -> ModelShape:
    config = dict(fact["config"])
    period = config.pop("layer_period", None)
    if period:
        config["layer_types"] = period * (config["num_hidden_layers"] // len(period))
    return shape_of(config, fact["name"], fact["source"])


@cache
def _names() -> dict[str, str]:
    known: dict[str, str] = {}
    for fact in model_facts():
        for one in (fact["name"], *fact.get("aliases", ())):
            known[_key(one)] = fact["name"]
    return known


def _key(name: str) -> str:
    return name.rsplit("/", 1)[-1].lower().replace("_", "-").removeprefix("meta-")


def _known(name: str) -> tuple[str | None, str | None]:
    """The catalogue's name and the precision that the given one asks for."""
    key, precision = _key(name), None
    while True:
        if key in _names():
            return _names()[key], precision
        if found := _PRECISION.search(key):
            precision = _STORED.get(found[1], found[1])
            key = key[: found.start()]
        elif found := _VARIANT.search(key):
            key = key[: found.start()]
        else:
            return None, None


def _from_file(path: Path) -> ModelShape:
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{file}: cannot read the model's configuration: {error.strerror}"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{file}: not JSON: {error}") from error
    if not isinstance(config, Mapping):
        raise ConfigError(f"{file}: a JSON object is needed, as in a checkpoint's config.json")
    name = str(config.get("_name_or_path") or "") or file.resolve().parent.name
    return shape_of(config, name, str(file))
