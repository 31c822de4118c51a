"""Requests straight into a running deployment, timed where the gateway would take them."""

import asyncio
import itertools
import time

import msgspec

from baton.core.delivery import Failed, Finished, Started, Tokens
from baton.core.request import Request, SamplingParams
from baton.errors import BatonError
from baton.runtime.deployment import Deployment

_NUMBERS = itertools.count()


class Timed(msgspec.Struct, kw_only=True):
    """One answered request: when it was submitted, when each token arrived, in seconds."""

    request_id: str
    mode: str = ""
    submitted_s: float = 0.0
    token_s: list[float] = []
    token_ids: list[int] = []
    cached_tokens: int = 0
    """Rows of the prompt that its source reused."""

    @property
    def ttft_s(self) -> float:
        """Submission to first token."""
        return self.token_s[0] - self.submitted_s


def make_request(prompt: tuple[int, ...], max_tokens: int, salt: str = "") -> Request:
    """A greedy request that runs to `max_tokens`; another `salt` shares no cache with it."""
    return Request(
        request_id=f"bench-{next(_NUMBERS)}",
        prompt_token_ids=prompt,
        sampling=SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True),
        cache_salt=salt,
    )


async def run_request(deployment: Deployment, request: Request) -> Timed:
    """Run one request to its end. Raises BatonError if it fails."""
    timed = Timed(request_id=request.request_id, submitted_s=time.perf_counter())
    async for delivery in deployment.router.submit(request):
        match delivery:
            case Started(mode=mode):
                timed.mode = mode
            case Tokens(tokens=tokens):
                now = time.perf_counter()
                timed.token_s += [now] * len(tokens)
                timed.token_ids += [token.token_id for token in tokens]
            case Failed(message=message):
                raise BatonError(f"benchmark request failed: {message}")
            case Finished(usage=usage):
                timed.cached_tokens = usage.cached_tokens
    return timed


async def run_together(deployment: Deployment, requests: list[Request]) -> list[Timed]:
    """Run requests concurrently."""
    return list(await asyncio.gather(*(run_request(deployment, r) for r in requests)))


def prompt_of(length: int, vocab_size: int, seed: int) -> tuple[int, ...]:
    """A reproducible prompt of `length` ordinary token ids."""
    reserved = min(256, vocab_size // 2)  # special tokens live at the low end
    usable = vocab_size - reserved
    return tuple(reserved + (seed * 7919 + i * 104729 + i * i * 31) % usable for i in range(length))
