"""Asking a router directly: one request, its deliveries, one record."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from baton.bench.compare.case import Ask
from baton.bench.compare.record import Record
from baton.core.delivery import Failed, Finished, Started, Tokens
from baton.core.request import Request, Token
from baton.runtime.router_host import RouterHost

ANSWER_TIMEOUT_S = 300.0


class _Seen:
    """The deliveries of one request so far."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.tokens: list[Token] = []
        self.finished: Finished | None = None
        self.error = ""


async def ask_router(
    router: RouterHost, case: str, label: str, ask: Ask, prompt: tuple[int, ...]
) -> Record:
    """Run one request to its end, or until it is given up on purpose."""
    request = Request(
        request_id=f"{case}/{label}",
        prompt_token_ids=prompt,
        sampling=ask.sampling,
        cache_salt=ask.salt,
        verify=True,
    )
    seen = _Seen()
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await _follow(router, request, ask.give_up_after, seen)
    except TimeoutError:
        seen.error = f"no end within {ANSWER_TIMEOUT_S:.0f} s"
    return _record(case, label, ask, len(prompt), seen)


async def _follow(router: RouterHost, request: Request, give_up_after: int, seen: _Seen) -> None:
    stream = router.submit(request)
    assert isinstance(stream, AsyncGenerator), "leaving the stream must cancel the request"
    async with aclosing(stream) as deliveries:
        async for delivery in deliveries:
            match delivery:
                case Started():
                    seen.started = delivery
                case Tokens(tokens=tokens):
                    seen.tokens.extend(tokens)
                case Finished():
                    seen.finished = delivery
                case Failed(code=code, message=message):
                    seen.error = f"{code}: {message}"
            if 0 < give_up_after <= len(seen.tokens):
                return


def _record(case: str, label: str, ask: Ask, num_prompt_tokens: int, seen: _Seen) -> Record:
    tokens, end = seen.tokens, seen.finished
    whole = not ask.give_up_after
    if not whole:  # how far a cancelled stream got is a matter of timing
        tokens, end = tokens[: ask.give_up_after], None
    drawn = [(token.logprob, token.top_logprobs) for token in tokens]
    asked = ask.sampling.num_logprobs >= 0
    return Record(
        case=case,
        label=label,
        mode=seen.started.mode if seen.started else "",
        tokens=tuple(token.token_id for token in tokens),
        logits=tuple(token.logits_digest for token in tokens),
        kv_digest=end.kv_digest if end else "",
        logprobs=msgspec.json.encode(drawn).decode() if asked else "",
        finish_reason=end.finish_reason if end else "",
        prompt_tokens=end.usage.prompt_tokens if end else num_prompt_tokens,
        completion_tokens=end.usage.completion_tokens if end else len(tokens),
        cached_tokens=seen.started.cached_tokens if seen.started else 0,
        error=seen.error,
        whole=whole,
    )
