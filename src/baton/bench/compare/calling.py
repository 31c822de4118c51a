"""Calling the gateway: one case's HTTP requests, one record per choice."""

from collections.abc import Mapping
from typing import Any

import msgspec

from baton.bench.compare.case import Call, Case
from baton.bench.compare.gateway_client import Answer, post
from baton.bench.compare.record import Record
from baton.errors import BatonError

_STOP_CHARS = 3
_BEFORE_STOP_CHARS = 2


async def call_gateway(address: tuple[str, int], case: Case) -> list[tuple[str, Record]]:
    """Make the calls of a case in order; returns the request id with each record."""
    answers: list[Answer | None] = []
    found: list[tuple[str, Record]] = []
    for index, call in enumerate(case.calls):
        try:
            earlier = answers[call.stop_from] if call.stop_from >= 0 else None
            body = _body(call.body, call.stop_from, earlier)
            answer = await post(address, call.path, body)
        except BatonError as error:
            answers.append(None)
            failed = Record(case=case.name, label=f"{index}.0", error=str(error), digests=False)
            found.append(("", failed))
            continue
        answers.append(answer)
        found += _records(case.name, index, call, answer)
    return found


def _body(body: Mapping[str, Any], stop_from: int, earlier: Answer | None) -> dict[str, Any]:
    if stop_from < 0:
        return dict(body)
    text = earlier.choices[0].text if earlier else ""
    return {**body, "stop": choose_stop(text)}


def choose_stop(text: str) -> str:
    """A string inside `text` that stops it; no replacement characters, which tokens may split."""
    for size in range(_STOP_CHARS, 0, -1):
        for start in range(_BEFORE_STOP_CHARS, len(text) - size):
            stop = text[start : start + size]
            if "\ufffd" not in stop and stop not in text[: start + size - 1]:
                return stop
    raise BatonError(f"no stop string can be taken from {text[:60]!r}")


def _records(case: str, index: int, call: Call, answer: Answer) -> list[tuple[str, Record]]:
    found = []
    for number, choice in sorted(answer.choices.items()):
        single = len(answer.choices) == 1
        request_id = answer.request_id if single else f"{answer.request_id}-{number}"
        details = answer.usage.get("prompt_tokens_details") or {}
        missed = call.stop_from >= 0 and choice.finish_reason != "stop"
        record = Record(
            case=case,
            label=f"{index}.{number}",
            mode=answer.mode,
            text=choice.text,
            logprobs=msgspec.json.encode(choice.logprobs).decode() if choice.logprobs else "",
            finish_reason=choice.finish_reason,
            prompt_tokens=answer.usage.get("prompt_tokens", 0),
            completion_tokens=answer.usage.get("completion_tokens", 0),
            cached_tokens=details.get("cached_tokens", 0),
            digests=False,
            unexercised="the stop string ended nothing" if missed else "",
        )
        found.append((request_id, record))
    return found
