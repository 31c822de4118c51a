"""A prompt's token ids, from a server's own tokenizer and template; only routes by prefix ask."""

from typing import Any

import msgspec

from baton.core.ids import Role
from baton.runtime.vllm.backend import VllmBackend
from baton.runtime.vllm.http_client import read_all
from baton.runtime.vllm.leg import LegFailed

TOKENIZE_S = 2.0
_FIELDS = (
    "prompt", "messages", "add_special_tokens", "add_generation_prompt", "continue_final_message",
    "tools", "chat_template", "chat_template_kwargs",
)  # fmt: skip


class _Tokens(msgspec.Struct):
    tokens: list[int]


async def token_ids_of(backend: VllmBackend, body: dict[str, Any]) -> tuple[int, ...]:
    """The prompt's tokens; () where no server says: the route is then chosen without them."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and all(isinstance(one, int) for one in prompt):
        return tuple(prompt)
    servers = backend.servers.up(Role.DECODE, Role.MIXED, Role.PREFILL)
    if not servers:
        return ()
    server = min(servers, key=lambda s: (s.pending_tokens + s.active, s.server_id))
    asked = {name: body[name] for name in _FIELDS if body.get(name) is not None}
    data = msgspec.json.encode({**asked, "model": server.model})
    headers = {"content-type": "application/json", **backend.own_headers}
    try:
        async with backend.client.post(
            "tokenize", server, "/tokenize", data, headers, TOKENIZE_S
        ) as answer:
            text = await read_all(answer, "tokenize", server, TOKENIZE_S)
        return tuple(msgspec.json.decode(text, type=_Tokens).tokens)
    except (LegFailed, msgspec.DecodeError) as error:
        backend.metrics.legs["tokenize", getattr(error, "reason", "not_json")] += 1
        return ()
