"""Ranges and defaults of the request parameters."""

import math

import msgspec

from baton.config import GatewayConfig
from baton.core.layout import ModelInfo
from baton.core.request import SLO, SamplingParams
from baton.errors import RequestRejected
from baton.runtime.gateway.errors import invalid
from baton.runtime.gateway.schema import ChatBody, CommonBody, CompletionBody

MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_STOP_TOKENS = 256
MAX_LOGPROBS = 20
MAX_SALT_CHARS = 256
MAX_TEMPERATURE = 2.0
MAX_SLO_MS = 86_400_000.0
DEFAULT_COMPLETION_TOKENS = 16
SEED_RANGE = 1 << 63


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a request except its prompts, checked."""

    n: int
    max_tokens: int | None
    """None: as many as the context leaves room for."""
    clamp: bool
    """Whether the client left the maximum open, so that it may shrink to fit."""
    min_tokens: int
    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    ignore_eos: bool
    stops: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    num_logprobs: int
    cache_salt: str
    slo: SLO
    """The request's own targets; 0 where it has none and the deployment's count."""
    skip_special_tokens: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool

    def sampling(self, num_prompt_tokens: int, seed: int, max_model_len: int) -> SamplingParams:
        """Sampling parameters for one prompt. Raises RequestRejected if it does not fit."""
        room = max_model_len - num_prompt_tokens
        wanted = room if self.max_tokens is None else self.max_tokens
        if room < 1 or (wanted > room and not self.clamp):
            asked = f" and max_tokens is {wanted}" if room >= 1 else ""
            raise RequestRejected(
                f"the prompt has {num_prompt_tokens} tokens{asked}, but the context holds "
                f"{max_model_len}; shorten the prompt or ask for fewer tokens",
                param="max_tokens" if room >= 1 else "prompt",
                code="context_length_exceeded",
            )
        return SamplingParams(
            max_tokens=min(wanted, room),
            min_tokens=min(self.min_tokens, wanted, room),
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            seed=seed,
            ignore_eos=self.ignore_eos,
            stop_token_ids=self.stop_token_ids,
            num_logprobs=self.num_logprobs,
        )


def check_parameters(
    body: ChatBody | CompletionBody, config: GatewayConfig, info: ModelInfo
) -> Parameters:
    """Check every field on its own. Raises RequestRejected naming field, value and remedy."""
    max_tokens = _max_tokens(body)
    clamp = max_tokens is None
    if max_tokens is None and isinstance(body, CompletionBody):
        max_tokens = DEFAULT_COMPLETION_TOKENS
    min_tokens = _integer("min_tokens", body.min_tokens, 0, 1 << 31, 0)
    if max_tokens is not None and not clamp and min_tokens > max_tokens:
        raise invalid("min_tokens", min_tokens, f"use at most max_tokens ({max_tokens})")
    options = body.stream_options
    if options is not None and not body.stream:
        raise invalid("stream_options", options, "use it only with stream: true")
    return Parameters(
        n=_integer("n", body.n, 1, config.max_n, 1),
        max_tokens=max_tokens,
        clamp=clamp,
        min_tokens=min_tokens,
        temperature=_temperature(body.temperature),
        top_p=_top_p(body.top_p),
        top_k=_top_k(body.top_k, info.vocab_size),
        seed=_seed(body.seed),
        ignore_eos=bool(body.ignore_eos),
        stops=_stops(body.stop),
        stop_token_ids=_stop_token_ids(body.stop_token_ids, info.vocab_size),
        num_logprobs=_num_logprobs(body),
        cache_salt=_cache_salt(body.cache_salt),
        slo=SLO(
            ttft_us=_slo_us("ttft_slo_ms", body.ttft_slo_ms),
            tpot_us=_slo_us("tpot_slo_ms", body.tpot_slo_ms),
        ),
        skip_special_tokens=body.skip_special_tokens is not False,
        stream=bool(body.stream),
        include_usage=bool(options and options.include_usage),
        continuous_usage=bool(options and options.include_usage and options.continuous_usage_stats),
    )


def _integer(name: str, value: int | None, low: int, high: int, default: int) -> int:
    if value is None:
        return default
    if not low <= value <= high:
        raise invalid(name, value, f"use an integer from {low} to {high}")
    return value


def _max_tokens(body: CommonBody) -> int | None:
    old = body.max_tokens
    new = body.max_completion_tokens if isinstance(body, ChatBody) else None
    if old is not None and new is not None and old != new:
        raise invalid("max_tokens", old, f"max_completion_tokens says {new}; send only one")
    name = "max_tokens" if new is None else "max_completion_tokens"
    value = old if new is None else new
    return None if value is None else _integer(name, value, 1, 1 << 31, 1)


def _temperature(value: float | None) -> float:
    if value is None:
        return 1.0
    if not (math.isfinite(value) and 0 <= value <= MAX_TEMPERATURE):
        raise invalid("temperature", value, f"use a number from 0 (greedy) to {MAX_TEMPERATURE:g}")
    return value


def _top_p(value: float | None) -> float:
    if value is None:
        return 1.0
    if not (math.isfinite(value) and 0 < value <= 1):
        raise invalid("top_p", value, "use a number above 0 and up to 1")
    return value


def _top_k(value: int | None, vocab_size: int) -> int:
    top_k = _integer("top_k", value, -1, 1 << 31, 0)
    return 0 if top_k < 0 or top_k >= vocab_size else top_k


def _seed(value: int | None) -> int | None:
    if value is None:
        return None
    return _integer("seed", value, -SEED_RANGE, SEED_RANGE - 1, 0) % SEED_RANGE


def _slo_us(name: str, value: float | None) -> int:
    if value is None:
        return 0
    if not 0.001 <= value <= MAX_SLO_MS:
        raise invalid(name, value, f"use milliseconds above 0 and up to {MAX_SLO_MS:.0f}")
    return round(value * 1000)


def _stops(value: str | list[str] | None) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value or []
    if len(stops) > MAX_STOPS:
        raise invalid("stop", stops, f"use at most {MAX_STOPS} strings")
    for stop in stops:
        if not 1 <= len(stop) <= MAX_STOP_CHARS:
            raise invalid("stop", stops, f"each string has from 1 to {MAX_STOP_CHARS} characters")
    return tuple(dict.fromkeys(stops))


def _stop_token_ids(value: list[int] | None, vocab_size: int) -> tuple[int, ...]:
    ids = value or []
    if len(ids) > MAX_STOP_TOKENS:
        raise invalid("stop_token_ids", ids, f"use at most {MAX_STOP_TOKENS} ids")
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise invalid("stop_token_ids", token_id, f"use token ids from 0 to {vocab_size - 1}")
    return tuple(dict.fromkeys(ids))


def _num_logprobs(body: ChatBody | CompletionBody) -> int:
    if isinstance(body, CompletionBody):
        return _integer("logprobs", body.logprobs, 0, MAX_LOGPROBS, -1)
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid("top_logprobs", body.top_logprobs, "use it only with logprobs: true")
    if not body.logprobs:
        return -1
    return _integer("top_logprobs", body.top_logprobs, 0, MAX_LOGPROBS, 0)


def _cache_salt(value: str | None) -> str:
    if value is None:
        return ""
    if not 1 <= len(value) <= MAX_SALT_CHARS:
        raise invalid("cache_salt", value, f"use from 1 to {MAX_SALT_CHARS} characters")
    return value
