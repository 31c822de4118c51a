"""Sections of knobs as data: reading a tree of values into them, and what their types permit."""

import enum
import math
import re
import tomllib
from collections.abc import Iterator
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from baton.errors import ConfigError

Tree = TypeVar("Tree", bound=msgspec.Struct)
_WRONG_VALUE = re.compile(r"- at `\$\.(\w+)\.(\w+)`$")
"""How a refused value ends; other refusals are of keys and sections."""


def convert_tree(tree: dict[str, Any], kind: type[Tree], place: str) -> Tree:
    """Read sections into `kind`. Raises ConfigError with the place, the key and what is known."""
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        remedy = "known keys: `baton config`"
        if wrong := _WRONG_VALUE.search(str(error)):
            section, name = wrong.groups()
            if choices := choices_of(_types_of(_types_of(kind)[section])[name]):
                remedy = f"use one of {', '.join(choices)}"
        raise ConfigError(f"{place}: {error}; {remedy}") from error


def apply_override(tree: dict[str, Any], override: str) -> None:
    """Write `section.key=value` into a tree; what is no TOML value is a bare word."""
    key, separator, text = override.partition("=")
    section, dot, name = key.strip().partition(".")
    if not (separator and dot and section and name):
        raise ConfigError(f"--set {override}: write it as section.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    node = tree.setdefault(section, {})
    if not isinstance(node, dict):
        raise ConfigError(f"--set {override}: {section!r} is not a section")
    node[name] = value


def knobs_of(config: msgspec.Struct) -> Iterator[tuple[str, str, Any, tuple[str, ...]]]:
    """Section, name, value and permitted words of every knob; without words any of its type."""
    for section in config.__struct_fields__:
        values = getattr(config, section)
        for name, kind in _types_of(type(values)).items():
            yield section, name, getattr(values, name), choices_of(kind)


def choices_of(kind: Any) -> tuple[str, ...]:
    """The words that a Literal or an enum permits; () for any other type."""
    if get_origin(kind) is Literal:
        return tuple(map(str, get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return tuple(str(member.value) for member in kind)
    return ()


def require_finite(config: msgspec.Struct, remedies: dict[str, str]) -> None:
    """Raise ConfigError for inf and nan: JSON has no word for them, so no worker would read them.

    `remedies` says for single knobs, as section.name, what a large number means there.
    """
    for section, name, value, _ in knobs_of(config):
        if isinstance(value, float) and not math.isfinite(value):
            knob = f"{section}.{name}"
            meaning = remedies.get(knob, "is as good as no limit")
            raise ConfigError(
                f"{knob}: {value} is not a finite number; a large one, as 1e9, {meaning}"
            )


def _types_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}
