"""What the command line of a vLLM server decides of its manifest; a value that is not there, or may
be overruled by a form that is not read here, is left out."""

from collections.abc import Sequence

import msgspec

_TP = ("--tensor-parallel-size", "-tp")
_PP = ("--pipeline-parallel-size", "-pp")
_TRANSFER = "--kv-transfer-config"


class _Transfer(msgspec.Struct, frozen=True):
    kv_connector: str
    kv_role: str
    kv_buffer_device: str = ""


class Commanded(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of one server; a key that is missing is not known."""

    server: dict[str, str] = {}
    """Fields of `ServerManifest`."""
    cache: dict[str, int] = {}
    """Fields of `CacheManifest`."""


def commanded(words: Sequence[str]) -> Commanded:
    """Facts in the arguments of a server, the last of each counting as for vLLM."""
    if _value(words, "--config") is not None:
        return Commanded()
    cache = {}
    for field, names in (("tp_size", _TP), ("pp_size", _PP)):
        text = _value(words, *names)
        if text is None or text.isdigit():
            cache[field] = int(text or 1)
    return Commanded(server=_transfer(words), cache=cache)


def _transfer(words: Sequence[str]) -> dict[str, str]:
    if any(word.startswith(f"{_TRANSFER}.") for word in words):
        return {}
    text = _value(words, _TRANSFER)
    if text is None:
        return {"connector": "none", "kv_role": "none"}
    try:
        told = msgspec.json.decode(text, type=_Transfer)
    except msgspec.DecodeError:
        return {}
    found = {"connector": told.kv_connector, "kv_role": told.kv_role}
    if told.kv_buffer_device:
        found["buffer_device"] = told.kv_buffer_device
    return found


def _value(words: Sequence[str], *names: str) -> str | None:
    """Of the last of these options; None where none is given."""
    found = None
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            following = words[index + 1] if index + 1 < len(words) else ""
            found = value if equals else following
    return found
