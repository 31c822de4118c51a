"""The judge of a chaos run: what counts as equal, wrong, truncated, stuck, a lie."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from baton.bench.chaos.answers import Answer, Choice
from baton.bench.chaos.asks import Ask, make_asks
from baton.bench.chaos.calls import Called, End, call
from baton.bench.chaos.injector import Deck
from baton.bench.chaos.kinds import HEAVY, Kind
from baton.bench.chaos.probes import Probe, Sample, is_contradiction, is_lie, slow_health

ASK = Ask(name="a", path="/v1/completions", body={"prompt": "x"})
WHOLE = Answer(choices={0: Choice(text="hello", finish_reason="length")})
JSON = "content-type: application/json\r\n"
STREAM = "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"


def response(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\n{JSON}content-length: {len(body)}\r\n\r\n{body}".encode()


def stream(*events: str, end: str = "0\r\n\r\n") -> bytes:
    data = [f"data: {event}\n\n" for event in events]
    chunks = "".join(f"{len(one):x}\r\n{one}\r\n" for one in data)
    return f"HTTP/1.1 200 OK\r\n{STREAM}\r\n{chunks}{end}".encode()


def piece(text: str, reason: str = "") -> str:
    finish = f'"{reason}"' if reason else "null"
    return f'{{"choices":[{{"index":0,"text":"{text}","finish_reason":{finish}}}]}}'


@pytest_asyncio.fixture
async def answered() -> AsyncIterator[Callable[..., Awaitable[Called]]]:
    """Call a server that answers with these bytes and closes."""
    servers = []

    async def run(data: bytes, *, hold: bool = False, leave: Kind | None = None) -> Called:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            await writer.drain()
            if hold:
                await asyncio.sleep(5)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        servers.append(server)
        address = server.sockets[0].getsockname()[:2]
        return await call(address, ASK, WHOLE, bound_s=0.5, leave=leave)

    yield run
    for server in servers:
        server.close()


DONE = "[DONE]"
ERROR = '{"error":{"message":"m","code":"attempts_exhausted"}}'


@pytest.mark.parametrize(
    ("data", "end", "code"),
    [
        (response(piece("hello", "length")), End.EQUAL, ""),
        (response(piece("hellO", "length")), End.WRONG, ""),
        (response(piece("hello", "stop")), End.WRONG, ""),
        (response(ERROR, "503 Service Unavailable"), End.REFUSED, "attempts_exhausted"),
        (response('{"error":{"message":"m"}}', "503 X"), End.UNTYPED, "HTTP 503"),
        (response("oops", "500 X"), End.UNTYPED, "HTTP 500"),
        (response('{"error":{"code":"internal_error"}}', "500 X"), End.UNTYPED, "internal_error"),
        (stream(piece("hel"), piece("lo", "length"), DONE), End.EQUAL, ""),
        (stream(piece("hel"), piece("l", "length"), DONE), End.WRONG, ""),
        (stream(piece("hel"), piece("lo"), DONE), End.TRUNCATED, ""),
        (stream(piece("hello", "length")), End.TRUNCATED, ""),
        (stream(piece("hel"), end=""), End.TRUNCATED, ""),
        (stream(piece("hel"), ERROR), End.FAILED, "attempts_exhausted"),
        (stream(piece("heL"), ERROR), End.WRONG, "attempts_exhausted"),
        (b"", End.UNREACHED, ""),
        (b"HTTP/1.1 200 OK\r\n", End.TRUNCATED, ""),
    ],
)
async def test_every_end_is_told_apart(answered, data, end, code):
    called = await answered(data)
    assert (called.end, called.code) == (end, code)


async def test_no_end_within_the_bound_is_stuck(answered):
    assert (await answered(stream(piece("hel"), end=""), hold=True)).end is End.STUCK


async def test_a_client_that_leaves_still_looks_at_what_it_read(answered):
    good, bad = stream(piece("hel"), end=""), stream(piece("heL"), end="")
    whole = stream(piece("hello", "length"), end="")
    for data, leave, end in (
        (good * 1, Kind.LEAVE_EARLY, End.LEFT),
        (stream(*[piece("")] * 8, end=""), Kind.LEAVE_MID, End.LEFT),
        (stream(*[piece("X")] * 8, end=""), Kind.LEAVE_MID, End.WRONG),
        (whole, Kind.LEAVE_END, End.LEFT),
        (bad, Kind.LEAVE_END, End.STUCK),
    ):
        assert (await answered(data, hold=True, leave=leave)).end is end


def sample(status: int, at_s: float, took_s: float = 0.0) -> Sample:
    return Sample(asked_s=at_s, answered_s=at_s + took_s, status=status)


def test_health_must_answer_within_a_second():
    probe = Probe(("", 0), "/health")
    probe.samples = [sample(200, 0, 0.9), sample(200, 1, 1.1), sample(503, 2), sample(0, 3)]
    assert len(slow_health(probe)) == 3


def test_ready_lies_when_a_role_is_long_gone():
    assert not is_lie(sample(200, 11.9), down_since_s=10)
    assert is_lie(sample(200, 12.1), down_since_s=10)
    assert not is_lie(sample(503, 99), down_since_s=10)


@pytest.mark.parametrize(
    ("statuses", "code", "lie"),
    [
        ([200] * 60, "not_ready", True),
        ([200] * 60, "queue_timeout", False),
        ([200] * 39 + [503] * 21, "not_ready", False),
        ([200] * 25 + [503] + [200] * 34, "not_ready", False),
    ],
)
def test_a_refusal_contradicts_ready_only_when_it_said_yes_all_along(statuses, code, lie):
    probe = Probe(("", 0), "/ready")
    probe.samples = [sample(status, 0.1 * n) for n, status in enumerate(statuses)]
    called = Called(ask="a", end=End.REFUSED, code=code, started_s=3.0, ended_s=4.0)
    assert is_contradiction(called, probe) == lie


def test_a_deck_deals_every_kind_before_any_comes_again():
    deck = Deck(HEAVY, 5)
    for _ in range(3):
        assert {deck.draw() for _ in HEAVY} == set(HEAVY)
    assert not Deck((), 5)


def test_prompts_are_those_of_the_seed_and_share_beginnings():
    asks = make_asks(9)
    assert asks == make_asks(9) != make_asks(10)
    assert {ask.is_chat for ask in asks} == {True, False}
    assert any(ask.body.get("n") == 2 for ask in asks)
    assert {ask.body["temperature"] for ask in asks} == {0.0, 0.9}
