"""Legs that go out at once, as for a source that pushes: the first failure ends the other."""

from contextlib import asynccontextmanager

from tests.runtime.vllm.faulty_vllm import expected_text
from tests.runtime.vllm.front import BODY, ask, pair, until

from baton.runtime.vllm.connector import NixlConnector

STREAM = {**BODY, "stream": True}


class Pushing(NixlConnector):
    """Handles are known before the prompt is computed."""

    is_together = True

    def __init__(self):
        super().__init__({})
        self.given_back = 0

    def early_params(self, asked):
        return {"handle": 1}

    async def give_back(self, client, decode, params):
        self.given_back += params == {"handle": 1}
        return True


@asynccontextmanager
async def pushing(*overrides):
    async with pair(*overrides) as (front, (prefill,), (decode,)):
        front.backend.connector = Pushing()
        yield front, prefill, decode


async def test_both_legs_are_under_way_together():
    async with pushing() as (front, prefill, decode):
        got = await ask(front, STREAM)
        assert got.is_done and got.text() == expected_text(BODY)
        assert got.headers["x-baton-mode"] == "disaggregated"
        assert decode.requests[0][1]["kv_transfer_params"] == {"handle": 1}
        assert len(prefill.requests) == 1
        assert front.backend.connector.given_back == 0


async def test_a_prefill_that_fails_ends_the_decode_that_waits_for_it():
    async with pushing("router.attempt_timeout_ms=30000") as (front, prefill, decode):
        prefill.fault, decode.fault = "500", "hang once"
        got = await ask(front, STREAM)
        assert got.is_done and got.headers["x-baton-reason"] == "prefill_status_500"
        await until(lambda: decode.aborted == 1)
        await until(lambda: front.backend.connector.given_back == 1)


async def test_a_decode_that_fails_ends_the_prefill_that_works_for_it():
    async with pushing("router.attempt_timeout_ms=30000") as (front, prefill, decode):
        prefill.fault, decode.fault = "hang", "500 once"
        got = await ask(front, STREAM)
        assert got.is_done and got.headers["x-baton-reason"] == "decode_status_500"
        await until(lambda: prefill.aborted == 1)
        await until(lambda: front.backend.connector.given_back == 1)
