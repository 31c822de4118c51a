"""Body bytes to a typed body; every way this can go wrong is one error that names the field."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from baton.errors import RequestRejected
from baton.runtime.gateway.errors import show
from baton.runtime.gateway.schema import CommonBody

MAX_DEPTH = 64

BodyT = TypeVar("BodyT", bound=CommonBody)

_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
_MISSING = re.compile(r"missing required field `(\w+)`")
_STEP = re.compile(r"(\w+)|\[(\d+)\]|\[\.\.\.\]")


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`; of duplicate keys the last one counts."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise RequestRejected(
            f"the body is not UTF-8 (byte {error.start}); send JSON encoded as UTF-8",
            code="invalid_utf8",
        ) from error
    try:
        body = msgspec.json.decode(data)
    except RecursionError as error:
        raise _malformed("it is nested too deeply") from error
    except msgspec.MsgspecError as error:
        raise _malformed(str(error)) from error
    if not isinstance(body, dict):
        raise _malformed(f"it is {show(body)}, not an object")
    num_open = data.count(b"[") + data.count(b"{")
    if num_open > MAX_DEPTH and _deeper_than(body, MAX_DEPTH):
        raise _malformed(f"it is nested more than {MAX_DEPTH} levels deep")
    return body


def convert(body: Mapping[str, Any], kind: type[BodyT]) -> BodyT:
    """`body` as a typed struct. Raises RequestRejected naming the field, value and remedy."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise _wrong_type(body, str(error)) from error
    except (OverflowError, RecursionError) as error:
        raise _malformed(str(error)) from error


def _malformed(reason: str) -> RequestRejected:
    return RequestRejected(
        f"the body is not usable JSON: {reason}; send one JSON object", code="invalid_json"
    )


def _wrong_type(body: Mapping[str, Any], text: str) -> RequestRejected:
    place = _PLACE.search(text)
    path = place.group(1) if place else ""
    reason = text[: place.start()] if place else text
    missing = _MISSING.search(reason)
    if missing:
        param = f"{path}.{missing.group(1)}" if path else missing.group(1)
        return RequestRejected(
            f"{param} is missing; add it", param=param, code="missing_required_parameter"
        )
    value, found = _value_at(body, path)
    shown = f"{path} is {show(value)}" if found else path
    return RequestRejected(
        f"{shown}: {reason[0].lower()}{reason[1:].replace('`', '')}; correct the type of {path}",
        param=path or None,
        code="invalid_type",
    )


def _value_at(body: Any, path: str) -> tuple[Any, bool]:
    """The offending value, if the validator's path leads to a single one."""
    node = body
    for name, index in _STEP.findall(path):
        try:
            if name:
                node = node[name]
            elif index:
                node = node[int(index)]
            else:
                return None, False
        except (KeyError, IndexError, TypeError):
            return None, False
    return node, True


def _deeper_than(value: dict[str, Any], limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        children: list[Any] = []
        for node in level:
            values = node.values() if type(node) is dict else node
            children.extend(value for value in values if type(value) in (dict, list))
        if not children:
            return False
        level = children
    return True
