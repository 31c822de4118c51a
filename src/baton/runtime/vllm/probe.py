"""One small handoff through a pair: it opens the connection between them, and shows that it works.

Servers meet at their first transfer. That can take seconds, and a pair that does not fit fails only
then: neither should happen to a request.
"""

import random
import time
import uuid

from baton.core.ids import Mode
from baton.runtime.notice import notice
from baton.runtime.vllm.backend import VllmBackend
from baton.runtime.vllm.bodies import Part
from baton.runtime.vllm.call import Call
from baton.runtime.vllm.leg import LegFailed
from baton.runtime.vllm.router import Ask, Route
from baton.runtime.vllm.servers import Server

_NUM_TOKENS = 66
"""More than two blocks of 32: something has to move."""
_TOKEN_RANGE = (10, 250)
"""Ordinary ids of any vocabulary, that of bytes included."""
_ATTEMPTS = 2


async def probe_pair(backend: VllmBackend, prefill: Server, decode: Server) -> None:
    """Record whether this pair of lives can hand over."""
    name = f"{prefill.server_id} to {decode.server_id}"
    failure = ""
    epochs = prefill.epoch, decode.epoch
    for _ in range(_ATTEMPTS):
        started_s = time.monotonic()
        failure = await _hand_over(backend, prefill, decode)
        if epochs != (prefill.epoch, decode.epoch) or not (prefill.is_up and decode.is_up):
            return
        if not failure:
            notice(name, f"hands over; the first one took {time.monotonic() - started_s:.1f} s")
            break
    if failure:
        notice(name, f"cannot hand over: {failure}; requests are served colocated meanwhile")
    backend.servers.prove(prefill, decode, failure)


async def _hand_over(backend: VllmBackend, prefill: Server, decode: Server) -> str:
    """ "" when the answer came, else what failed."""
    # Never the same prompt: neither side may find it in its cache.
    prompt = [random.randrange(*_TOKEN_RANGE) for _ in range(_NUM_TOKENS)]
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
    call = Call(
        backend,
        Part(index=0, prompt_index=0, body=body),
        Ask(num_tokens=_NUM_TOKENS, num_output_tokens=1),
        path="/v1/completions",
        request_id=f"probe-{uuid.uuid4().hex}",
        tenant_id="",
        headers=backend.own_headers,
        started_s=time.monotonic(),
    )
    route = Route(prefill=prefill, decode=decode, mode=Mode.DISAGGREGATED, reason="probe")
    try:
        async for _ in call.attempt(route):
            pass
    except LegFailed as failed:
        return f"{failed} {failed.body[:200].decode('utf-8', 'replace')}".strip()
    return ""
