"""The smallest HTTP client that can read the gateway's answers, whole or as a stream."""

import asyncio
import http.client
from typing import Any

import msgspec

from baton.errors import BatonError

_TIMEOUT_S = 300.0


class Choice(msgspec.Struct, kw_only=True):
    """One choice of an answer, put together again if it came in pieces."""

    text: str = ""
    finish_reason: str = ""
    logprobs: list[Any] = msgspec.field(default_factory=list)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to one call."""

    request_id: str
    mode: str
    choices: dict[int, Choice]
    usage: dict[str, Any]


async def post(address: tuple[str, int], path: str, body: dict[str, Any]) -> Answer:
    """Send a body and read the whole answer. Raises BatonError with the server's refusal."""
    return await asyncio.to_thread(_post, address, path, msgspec.json.encode(body))


def _post(address: tuple[str, int], path: str, data: bytes) -> Answer:
    connection = http.client.HTTPConnection(*address, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise BatonError(f"{path}: {type(error).__name__}: {error}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise BatonError(f"{path}: HTTP {response.status}: {content.decode(errors='replace'):.200}")
    mode = response.getheader("x-baton-mode") or ""
    if (response.getheader("content-type") or "").startswith("text/event-stream"):
        return _join(_events(content), mode)
    return _join([msgspec.json.decode(content)], mode)


def _events(content: bytes) -> list[dict[str, Any]]:
    lines = [line[6:] for line in content.splitlines() if line.startswith(b"data: ")]
    if not lines or lines[-1] != b"[DONE]":
        raise BatonError("the stream did not end with [DONE]")
    return [msgspec.json.decode(line) for line in lines[:-1]]


def _join(objects: list[dict[str, Any]], mode: str) -> Answer:
    choices: dict[int, Choice] = {}
    usage: dict[str, Any] = {}
    for item in objects:
        if "error" in item:
            raise BatonError(f"the stream ended with an error: {item['error']}")
        usage = item.get("usage") or usage
        for part in item["choices"]:
            choice = choices.setdefault(part["index"], Choice())
            message = part.get("message") or part.get("delta") or {}
            choice.text += part.get("text") or message.get("content") or ""
            choice.finish_reason = part.get("finish_reason") or choice.finish_reason
            if part.get("logprobs"):
                choice.logprobs.append(part["logprobs"])
    request_id = str(objects[0]["id"]).partition("-")[2]
    return Answer(request_id=request_id, mode=mode, choices=choices, usage=usage)
