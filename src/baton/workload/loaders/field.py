"""Numbers out of a row; what is not one is refused with its place, field, value and remedy."""

import math
import re

from baton.errors import ConfigError

MAX_TOKENS = 1_000_000_000
MAX_TIME_US = 1 << 60
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def read_count(value: object, field: str, place: str) -> int:
    """A whole number of at least 0, from text or JSON; 12.0 is 12, as data frames write it."""
    number = _whole(value)
    if number is None:
        raise ConfigError(f"{place}: {field} = {value!r} is not a whole number; correct the row")
    if number < 0:
        raise ConfigError(f"{place}: {field} = {value!r} is negative; correct or remove the row")
    return number


def read_length(value: object, field: str, place: str) -> int:
    """A length in tokens: at least 1, and no more than any model could take."""
    number = read_count(value, field, place)
    if number == 0:
        raise ConfigError(
            f"{place}: {field} = {value!r}; a request has at least 1 token here: remove the row"
        )
    if number > MAX_TOKENS:
        raise ConfigError(
            f"{place}: {field} = {value!r} is more than {MAX_TOKENS} tokens; correct the row"
        )
    return number


def read_time_us(value: object, field: str, place: str, *, unit_us: int) -> int:
    """A time in microseconds, from a number of units of `unit_us`."""
    number = _real(value)
    if number is None or not math.isfinite(number):
        raise ConfigError(f"{place}: {field} = {value!r} is not a number; correct the row")
    time_us = round(number * unit_us)
    if abs(time_us) > MAX_TIME_US:
        raise ConfigError(f"{place}: {field} = {value!r} is not a plausible time; correct the row")
    return time_us


def _whole(value: object) -> int | None:
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = _real(value)
    return int(number) if number is not None and number.is_integer() else None


def _real(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e300 else math.inf
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value)
    return None
