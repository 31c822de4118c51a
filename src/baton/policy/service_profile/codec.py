"""The file format `baton.service_profile/1`: one JSON object, refused as a whole or taken."""

import math
from collections.abc import Iterator

import msgspec

from baton.errors import ConfigError
from baton.policy.service_profile.profile import ServiceProfile
from baton.policy.service_profile.terms import WORK_TERMS

FORMAT = "baton.service_profile/1"
_REMEDY = "measure it again with `baton profile`"


class _Header(msgspec.Struct):
    format: str = ""


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    profile: ServiceProfile


def encode_profile(profile: ServiceProfile) -> bytes:
    """The file's bytes. Raises ConfigError for a number that no file can hold."""
    _check_numbers(profile, "this profile")
    text = msgspec.json.encode(_File(format=FORMAT, profile=profile))
    return msgspec.json.format(text, indent=1) + b"\n"


def decode_profile(data: bytes, place: str) -> ServiceProfile:
    """Read a file's bytes; ConfigError names `place`, what is wrong and the remedy."""
    try:
        header = msgspec.json.decode(data, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{place}: not a whole service profile, perhaps cut off: {error}; {_REMEDY}"
        ) from error
    if header.format != FORMAT:
        raise ConfigError(f"{place}: format {header.format!r}, not {FORMAT!r}; {_REMEDY}")
    try:
        profile = msgspec.json.decode(data, type=_File).profile
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{place}: {error}; {_REMEDY}") from error
    _check_numbers(profile, place)
    return profile


def _check_numbers(profile: ServiceProfile, place: str) -> None:
    for name, value in _numbers(msgspec.to_builtins(profile), ""):
        if not math.isfinite(value) or value < 0:
            raise ConfigError(f"{place}: {name} is {value}; no cost is that; {_REMEDY}")
    steps = profile.steps
    if len(steps.row_us) != len(steps.grid.row_knots) or len(steps.work_us) != len(WORK_TERMS):
        raise ConfigError(f"{place}: profile.steps has another number of coefficients; {_REMEDY}")
    contention = profile.contention
    if min(contention.prefill_beside_decode, contention.decode_beside_prefill) < 1:
        raise ConfigError(f"{place}: profile.contention is below 1: {contention}; {_REMEDY}")
    if not profile.transfer.bytes_per_us:
        raise ConfigError(f"{place}: profile.transfer.bytes_per_us is 0; {_REMEDY}")


def _numbers(value: object, name: str) -> Iterator[tuple[str, float]]:
    """Every number in a decoded value, with the path to it."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(item, f"{name}.{key}".lstrip("."))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _numbers(item, f"{name}[{index}]")
    elif isinstance(value, float | int) and not isinstance(value, bool):
        yield name, float(value)
