"""Request bodies of the two legs, as pure functions of what the client sent."""

from collections.abc import Mapping
from typing import Any

import msgspec

from baton.errors import RequestRejected
from baton.runtime.gateway.errors import invalid

Body = dict[str, Any]

PROMPT_FIELDS = frozenset(
    {
        "model", "prompt", "messages", "add_special_tokens", "truncate_prompt_tokens",
        "truncation_side", "cache_salt", "priority", "tools", "tool_choice", "chat_template",
        "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "documents",
        "mm_processor_kwargs", "media_io_kwargs", "reasoning_effort", "thinking_token_budget",
    }
)  # fmt: skip
"""What decides the prompt's K/V: the prefill leg gets these and nothing else."""

STEERING_FIELDS = frozenset({"kv_transfer_params", "ec_transfer_params", "request_id"})
"""Fields of vLLM that would let a client steer a transfer, or take another request's name."""

SEED_RANGE = 1 << 63


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One output of a request: what one pair of legs serves."""

    index: int
    """Of its choice in the answer."""
    prompt_index: int
    body: Body
    whole: bool = False
    """The body goes to one server as it is, whatever it asks for."""
    reason: str = ""
    """Why it cannot be handed over; "" if it can."""


def without_steering(body: Body) -> Body:
    """The body without the fields that only a router may set."""
    kept = {
        name: value
        for name, value in body.items()
        if name not in STEERING_FIELDS and not name.startswith(("remote_", "do_remote_"))
    }
    extra = kept.get("vllm_xargs")
    if isinstance(extra, dict):
        kept["vllm_xargs"] = {k: v for k, v in extra.items() if not k.endswith("transfer_params")}
    return kept


def unsplittable(body: Mapping[str, Any]) -> str:
    """The field that needs prompt and answer on one server, or ""."""
    for name in ("use_beam_search", "prompt_embeds", "echo"):
        if body.get(name):
            return name
    if body.get("n") not in (None, 1) and body.get("temperature") == 0:
        return "greedy_n"  # vLLM refuses it, and says why
    return "prompt_logprobs" if body.get("prompt_logprobs") is not None else ""


def parts_of(body: Body, chat: bool, *, max_n: int, max_prompts: int) -> list[Part]:
    """One part for each output, so that no handle is ever read by two decodes.

    Raises RequestRejected for counts that are out of bounds.
    """
    if reason := unsplittable(body):
        return [Part(index=0, prompt_index=0, body=body, whole=True, reason=reason)]
    n = body.get("n")
    n = 1 if n is None else n
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= max_n:
        raise invalid("n", n, f"use 1 to {max_n}")
    prompts = [None] if chat else prompts_of(body)
    if len(prompts) > max_prompts:
        raise RequestRejected(
            f"prompt holds {len(prompts)} prompts; send at most {max_prompts} at once",
            param="prompt",
        )
    if n * len(prompts) == 1:
        return [Part(index=0, prompt_index=0, body=body)]
    return [
        Part(index=i * n + k, prompt_index=i, body=_one(body, prompt, k, chat))
        for i, prompt in enumerate(prompts)
        for k in range(n)
    ]


def prompts_of(body: Mapping[str, Any]) -> list[Any]:
    """The prompts of a completion: texts, or lists of token ids."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise invalid("prompt", prompt, "use a text, token ids, or a list of either")
    return [prompt] if isinstance(prompt[0], int) else list(prompt)


def _one(body: Body, prompt: Any, copy: int, chat: bool) -> Body:
    one = {**body, "n": 1}
    if not chat:
        one["prompt"] = prompt
    seed = body.get("seed")
    if isinstance(seed, int) and copy:
        one["seed"] = (seed + copy) % SEED_RANGE  # as vLLM numbers the seeds of n outputs
    return one


def prefill_body(body: Mapping[str, Any], params: Mapping[str, Any]) -> Body:
    """The prefill leg: the prompt, one token, no stream."""
    return {
        **{name: value for name, value in body.items() if name in PROMPT_FIELDS},
        "max_tokens": 1,
        "max_completion_tokens": 1,
        "stream": False,
        "temperature": 0,
        "kv_transfer_params": dict(params),
    }


def decode_body(body: Mapping[str, Any], params: Mapping[str, Any] | None) -> Body:
    """The decode leg: what the client sent, and where the prompt's K/V is."""
    if params is None:
        return dict(body)
    return {**body, "kv_transfer_params": dict(params)}


def prompt_length(body: Mapping[str, Any]) -> int:
    """Tokens of a prompt where they are given, else an estimate from its length in bytes."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
        return len(prompt)
    text = prompt if prompt is not None else body.get("messages")
    return max(1, len(msgspec.json.encode(text)) // 4)
