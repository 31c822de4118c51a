"""Log probabilities in OpenAI's two forms: chat (with bytes) and completions (parallel lists)."""

import codecs
import math
from typing import Any

from baton.core.request import Token
from baton.runtime.gateway.tokenizer import Tokenizer

LOWEST = -9999.0
"""Stands for minus infinity, which JSON cannot write."""


def chat_logprobs(tokens: tuple[Token, ...], num_top: int, tokenizer: Tokenizer) -> dict[str, Any]:
    """`choices[].logprobs` of the chat endpoint."""

    def entry(token_id: int, logprob: float | None) -> dict[str, Any]:
        data = tokenizer.token_bytes(token_id)
        return {
            "token": data.decode(errors="replace"),
            "logprob": _finite(logprob),
            "bytes": list(data),
        }

    content = []
    for token in tokens:
        made = entry(token.token_id, token.logprob)
        top = token.top_logprobs[:num_top]
        made["top_logprobs"] = [entry(one.token_id, one.logprob) for one in top]
        content.append(made)
    return {"content": content, "refusal": None}


def completion_logprobs(
    tokens: tuple[Token, ...], num_top: int, tokenizer: Tokenizer, text_offset: int
) -> dict[str, Any]:
    """`choices[].logprobs` of the completions endpoint."""

    def name_of(token_id: int) -> str:
        data = tokenizer.token_bytes(token_id)
        try:
            return data.decode()
        except UnicodeDecodeError:  # as OpenAI writes parts of a character; keys stay distinct
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    names = [name_of(token.token_id) for token in tokens]
    offsets = []
    utf8 = codecs.getincrementaldecoder("utf-8")("replace")
    for token in tokens:
        offsets.append(text_offset)
        if not tokenizer.is_special(token.token_id):
            text_offset += len(utf8.decode(tokenizer.token_bytes(token.token_id)))
    top: list[dict[str, float]] | None = None
    if num_top > 0:
        top = []
        for token, name in zip(tokens, names, strict=True):
            # The drawn token is always listed, so there may be one more than asked for.
            row = {
                name_of(one.token_id): _finite(one.logprob) for one in token.top_logprobs[:num_top]
            }
            row.setdefault(name, _finite(token.logprob))
            top.append(row)
    return {
        "tokens": names,
        "token_logprobs": [_finite(token.logprob) for token in tokens],
        "top_logprobs": top,
        "text_offset": offsets,
    }


def _finite(logprob: float | None) -> float:
    if logprob is None or math.isnan(logprob):
        return LOWEST
    return max(logprob, LOWEST)
