"""The JSON bodies that the endpoints understand; fields not listed here are never forwarded."""

from typing import Any

import msgspec


class StreamOptions(msgspec.Struct, kw_only=True):
    """What a stream reports beside text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Message(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One message of a conversation."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class CommonBody(msgspec.Struct, kw_only=True):
    """The fields of both endpoints. None always means the default."""

    model: str | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    cache_salt: str | None = None
    skip_special_tokens: bool | None = None
    ttft_slo_ms: float | None = None
    tpot_slo_ms: float | None = None


class ChatBody(CommonBody, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionBody(CommonBody, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[Any]
    logprobs: int | None = None
    add_special_tokens: bool | None = None
