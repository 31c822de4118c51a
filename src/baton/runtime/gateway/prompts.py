"""Prompts to token ids: chat messages through the template, completions as text or ids."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from baton.core.layout import ModelInfo
from baton.errors import RequestRejected
from baton.runtime.gateway.errors import invalid, show
from baton.runtime.gateway.schema import ChatBody, CompletionBody, Message
from baton.runtime.gateway.tokenizer import Tokenizer

INLINE_CHARS = 16_384
"""Texts up to this length are tokenized on the event loop; longer ones on a thread."""

TokenIds = tuple[int, ...]

_ROLES = {
    "system": "system",
    "developer": "system",  # templates know only the older name
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


async def chat_prompts(body: ChatBody, tokenizer: Tokenizer, info: ModelInfo) -> list[TokenIds]:
    """The one prompt of a conversation."""
    if not body.messages:
        raise invalid("messages", [], "send at least one message")
    messages = [
        _template_message(message, f"messages[{index}]")
        for index, message in enumerate(body.messages)
    ]
    extra = {
        name: value
        for name, value in (body.chat_template_kwargs or {}).items()
        if name not in ("messages", "chat_template", "add_generation_prompt", "self")
    }
    size = sum(len(message["content"]) for message in messages)

    def tokenize() -> list[TokenIds]:
        text = tokenizer.apply_chat_template(
            messages, add_generation_prompt=body.add_generation_prompt is not False, **extra
        )
        _check_length(text, "messages", tokenizer, info)
        # The template writes BOS itself where the model wants one.
        return [tuple(tokenizer.encode(text, add_special_tokens=False))]

    return _not_empty(await _off_loop(tokenize, size), "messages")


async def completion_prompts(
    body: CompletionBody, tokenizer: Tokenizer, info: ModelInfo, max_prompts: int
) -> list[TokenIds]:
    """The prompts of a completion request, in the client's order."""
    prompt = body.prompt
    if isinstance(prompt, list) and prompt and type(prompt[0]) is int:
        prompt = [prompt]
    items: list[Any] = [prompt] if isinstance(prompt, str) else prompt
    if not 1 <= len(items) <= max_prompts:
        remedy = f"send from 1 to {max_prompts} prompts"
        raise RequestRejected(f"prompt has {len(items)} entries; {remedy}", param="prompt")
    for index, item in enumerate(items):
        if isinstance(item, str):
            _check_length(item, "prompt", tokenizer, info)
        elif isinstance(item, list):
            _check_ids(item, index, info)
        else:
            raise invalid("prompt", prompt, "use a string, token ids, or a list of either")
    special = body.add_special_tokens is not False

    def tokenize() -> list[TokenIds]:
        return [
            tuple(tokenizer.encode(item, add_special_tokens=special))
            if isinstance(item, str)
            else tuple(item)
            for item in items
        ]

    size = sum(len(item) for item in items)
    return _not_empty(await _off_loop(tokenize, size), "prompt")


async def _off_loop(work: Callable[[], list[TokenIds]], num_chars: int) -> list[TokenIds]:
    """Run `work` without holding up other streams if it may take long."""
    if num_chars <= INLINE_CHARS:
        return work()
    return await asyncio.to_thread(work)


def _not_empty(prompts: list[TokenIds], param: str) -> list[TokenIds]:
    for token_ids in prompts:
        if not token_ids:
            raise RequestRejected(f"{param} has no tokens; send at least one token", param=param)
    return prompts


def _check_length(text: str, param: str, tokenizer: Tokenizer, info: ModelInfo) -> None:
    """Refuse what cannot fit before time is spent on tokenizing it."""
    fewest = len(text) // tokenizer.max_token_chars
    if fewest >= info.max_model_len:
        raise RequestRejected(
            f"{param} has {len(text)} characters, at least {fewest} tokens, but the context holds "
            f"{info.max_model_len}; shorten it",
            param=param,
            code="context_length_exceeded",
        )


def _check_ids(ids: list[Any], index: int, info: ModelInfo) -> None:
    vocab_size = info.vocab_size
    if len(ids) >= info.max_model_len:
        raise RequestRejected(
            f"prompt[{index}] has {len(ids)} tokens, but the context holds {info.max_model_len} "
            "and one must be left to generate; shorten it",
            param="prompt",
            code="context_length_exceeded",
        )
    for position, token_id in enumerate(ids):
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise RequestRejected(
                f"prompt[{index}][{position}] is {show(token_id)}; use token ids from 0 to "
                f"{vocab_size - 1}",
                param="prompt",
            )


def _template_message(message: Message, place: str) -> dict[str, Any]:
    role = _ROLES.get(message.role)
    if role is None:
        raise invalid(f"{place}.role", message.role, f"use one of {', '.join(_ROLES)}")
    made: dict[str, Any] = msgspec.to_builtins(message)
    made["role"] = role
    made["content"] = _text_of(message, place)
    return made


def _text_of(message: Message, place: str) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    if content is None:
        if message.role == "assistant":
            return ""
        raise invalid(f"{place}.content", None, "send a string")
    texts = []
    for index, part in enumerate(content):
        kind = part.get("type")
        text = part.get("refusal" if kind == "refusal" else "text")
        if kind not in ("text", "refusal", "input_text") or not isinstance(text, str):
            raise invalid(
                f"{place}.content[{index}]",
                part,
                'use parts like {"type": "text", "text": "…"}: only text is served',
                "unsupported_content_part",
            )
        texts.append(text)
    return "\n".join(texts)
