"""The `usage` of an answer: each prompt counts once, and what was cached is what nobody computed.

A decode server counts K/V that it received as cached. Only the prefill server knows what it reused.
"""

from typing import Any

Usage = dict[str, Any]


def corrected(usage: Usage, reused: int | None) -> Usage:
    """With the prefill server's count where there was one."""
    if reused is None:
        return usage
    details = usage.get("prompt_tokens_details")
    details = dict(details) if isinstance(details, dict) else {}
    return {**usage, "prompt_tokens_details": {**details, "cached_tokens": reused}}


def total(usages: dict[int, tuple[int, Usage]]) -> Usage:
    """Of several outputs, given as index: (prompt index, usage).

    Of the outputs of one prompt the least reuse counts: the others found what it had computed.
    """
    prompts: dict[int, int] = {}
    cached: dict[int, int] = {}
    completion = 0
    for prompt, usage in usages.values():
        completion += _count(usage.get("completion_tokens"))
        prompts[prompt] = _count(usage.get("prompt_tokens"))
        one = cached_tokens(usage)
        cached[prompt] = min(cached.get(prompt, one), one)
    return {
        "prompt_tokens": sum(prompts.values()),
        "total_tokens": sum(prompts.values()) + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": sum(cached.values())},
    }


def cached_tokens(usage: Usage) -> int:
    """Cached prompt tokens that a usage names; 0 without details."""
    details = usage.get("prompt_tokens_details")
    return _count(details.get("cached_tokens")) if isinstance(details, dict) else 0


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
