"""A request as the router and the workers see it: immutable, with server-minted identity."""

import msgspec


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are drawn. The draw for position p uses (seed, p), so any worker continues it."""

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    num_logprobs: int = -1
    """-1: none; 0: the drawn token's; k: also the k most likely."""


class SLO(msgspec.Struct, frozen=True, kw_only=True):
    """The two clocks a request is judged by, in microseconds; 0 means no target."""

    ttft_us: int = 0
    tpot_us: int = 0


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One generation request. `client_request_id` appears in logs only; `arrival_us` is local."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    tenant_id: str = ""
    client_request_id: str = ""
    cache_salt: str = ""
    slo: SLO = SLO()
    arrival_us: int = 0
    verify: bool = False
    """Ask for logits and K/V digests with the answer (used by `baton compare`)."""

    @property
    def num_prompt_tokens(self) -> int:
        """Prompt length in tokens."""
        return len(self.prompt_token_ids)


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token accounting of one finished request; `cached_tokens` is the source's real reuse."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class TopLogprob(msgspec.Struct, frozen=True, array_like=True):
    """One alternative at one position."""

    token_id: int
    logprob: float


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One generated token; `index` counts from 0 within the request's output."""

    index: int
    token_id: int
    logprob: float | None = None
    top_logprobs: tuple[TopLogprob, ...] = ()
    logits_digest: str = ""
