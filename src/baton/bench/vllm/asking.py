"""One request to an OpenAI server, and everything of its answer that can be compared."""

import asyncio
from typing import Any

import aiohttp
import msgspec

from baton.bench.load.sse import DONE, EventReader


class Output(msgspec.Struct, kw_only=True):
    """One choice of an answer."""

    token_ids: list[int] = []
    text: str = ""
    finish_reason: str = ""
    logprobs: list[float] = []
    """Of the tokens of the answer; empty where none were asked for."""


class Answer(msgspec.Struct, kw_only=True):
    """What a server said. `error` is set where the answer is not complete."""

    outputs: dict[int, Output] = {}
    prompt_tokens: int = -1
    completion_tokens: int = -1
    cached_tokens: int = -1
    mode: str = ""
    reason: str = ""
    status: int = 0
    error: str = ""
    code: str = ""
    """Of an error that the server has named; "" for one that only the client noticed."""
    is_done: bool = False

    def output(self, index: int) -> Output:
        """The choice with this index, made where it is new."""
        return self.outputs.setdefault(index, Output())


async def ask(
    session: aiohttp.ClientSession,
    url: str,
    body: dict[str, Any],
    timeout_s: float,
    into: Answer | None = None,
    give_up_after: int = 0,
) -> Answer:
    """Send a body to its endpoint and read the answer to its end; errors are part of it.

    With `into` whoever cancels this still has what came before. After `give_up_after` tokens of a
    stream the client leaves; the answer is what it had read.
    """
    answer = Answer() if into is None else into
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    try:
        async with (
            asyncio.timeout(timeout_s),
            session.post(url + path, json=body) as response,
        ):
            answer.status = response.status
            answer.mode = response.headers.get("x-baton-mode", "")
            answer.reason = response.headers.get("x-baton-reason", "")
            if response.status != 200:
                text = await response.read()
                answer.error = text.decode("utf-8", "replace")[:300]
                answer.code = _code_of(text)
            elif body.get("stream"):
                await _read_stream(response, answer, give_up_after)
            else:
                take(answer, msgspec.json.decode(await response.read()))
                answer.is_done = True
    except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
        answer.error = f"{type(error).__name__}: {error}"[:300]
    if not answer.error and not answer.is_done:
        answer.error = "the stream ended without [DONE]"
    return answer


def _code_of(body: bytes) -> str:
    try:
        error = msgspec.json.decode(body)["error"]
        return str(error.get("code") or error.get("type") or "")
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return ""


async def _read_stream(
    response: aiohttp.ClientResponse, answer: Answer, give_up_after: int
) -> None:
    reader = EventReader()
    while piece := await response.content.readany():
        for event in reader.feed(piece):
            if event == DONE:
                answer.is_done = True
                continue
            tree = msgspec.json.decode(event)
            if "error" in tree:
                answer.error = str(tree["error"].get("message"))[:300]
                answer.code = str(tree["error"].get("code") or "")
                return
            take(answer, tree)
            if give_up_after and len(answer.output(0).token_ids) >= give_up_after:
                tokens = answer.output(0).token_ids[:give_up_after]
                answer.outputs = {0: Output(token_ids=tokens)}
                answer.is_done = True
                return


def take(answer: Answer, tree: dict[str, Any]) -> None:
    """Add one body or chunk to an answer."""
    for choice in tree.get("choices", []):
        output = answer.output(choice.get("index", 0))
        message = choice.get("message") or choice.get("delta") or {}
        output.text += choice.get("text") or message.get("content") or ""
        output.token_ids += choice.get("token_ids") or []
        output.finish_reason = choice.get("finish_reason") or output.finish_reason
        logprobs = choice.get("logprobs") or {}
        output.logprobs += logprobs.get("token_logprobs") or []
        output.logprobs += [one["logprob"] for one in logprobs.get("content") or []]
    usage = tree.get("usage")
    if usage:
        answer.prompt_tokens = usage.get("prompt_tokens", -1)
        answer.completion_tokens = usage.get("completion_tokens", -1)
        details = usage.get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens")
        answer.cached_tokens = -1 if cached is None else cached
