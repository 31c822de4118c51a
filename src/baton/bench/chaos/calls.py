"""One call of the gateway, from its first byte to its one end."""

import asyncio
import random
import time
from enum import StrEnum
from typing import Any

import msgspec

from baton.bench.chaos.answers import DONE, Answer, EventReader, error_code
from baton.bench.chaos.asks import Ask
from baton.bench.chaos.kinds import Kind
from baton.bench.chaos.wire import Address, BrokenAnswer, Connection
from baton.errors import BatonError

_EARLY_S = 0.06


class End(StrEnum):
    """How a request ended for its client."""

    EQUAL = "equal"
    REFUSED = "refused"
    FAILED = "failed in its stream"
    LEFT = "client left"
    UNREACHED = "not reached"
    WRONG = "wrong"
    TRUNCATED = "truncated"
    UNTYPED = "untyped error"
    STUCK = "stuck"


VIOLATIONS = (End.WRONG, End.TRUNCATED, End.UNTYPED, End.STUCK)


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """A call that has ended, with its times on the monotonic clock."""

    ask: str
    end: End
    code: str = ""
    detail: str = ""
    started_s: float
    ended_s: float


async def call(
    address: Address,
    ask: Ask,
    reference: Answer | None,
    *,
    bound_s: float,
    extra: dict[str, Any] | None = None,
    leave: Kind | None = None,
    chance: random.Random | None = None,
) -> Called:
    """Make a call and judge it. Without a reference any whole answer counts as equal."""
    caller = _Caller(address, ask, reference, extra or {}, leave, chance or random.Random(0))
    started_s = time.monotonic()
    code = detail = ""
    try:
        async with asyncio.timeout(bound_s):
            end, code = await caller.run()
    except TimeoutError:
        end, detail = End.STUCK, f"no end after {bound_s:.0f} s"
    except BrokenAnswer as error:
        end, detail = (End.TRUNCATED if error.started else End.UNREACHED), str(error)
    if end in VIOLATIONS:
        detail = detail or caller.difference()
    return Called(
        ask=ask.name,
        end=end,
        code=code,
        detail=detail,
        started_s=started_s,
        ended_s=time.monotonic(),
    )


class _Caller:
    def __init__(
        self,
        address: Address,
        ask: Ask,
        reference: Answer | None,
        extra: dict[str, Any],
        leave: Kind | None,
        chance: random.Random,
    ) -> None:
        self._address = address
        self._ask = ask
        self._reference = reference
        self._body = {**ask.body, **extra}
        self._leave = leave
        self._chance = chance
        self.answer = Answer(choices={})

    async def run(self) -> tuple[End, str]:
        async with Connection(self._address) as connection:
            await connection.post(self._ask.path, self._body)
            if self._leave is Kind.LEAVE_EARLY:
                await asyncio.sleep(self._chance.uniform(0, _EARLY_S))
                return End.LEFT, ""
            await connection.read_head()
            if connection.status != 200:
                return await _refusal(connection)
            if connection.header("content-type").startswith("text/event-stream"):
                return await self._read_stream(connection)
            if self._leave is not None:  # with the head, the whole answer is on its way
                return End.LEFT, ""
            body = b"".join([piece async for piece in connection.pieces()])
            self.answer.add(msgspec.json.decode(body))
            self.answer.is_done = True
            return self._judge(), ""

    async def _read_stream(self, connection: Connection) -> tuple[End, str]:
        reader, wanted = EventReader(), self._chance.randrange(1, 8)
        async for data in connection.pieces():
            for event in reader.feed(data):
                if event == DONE:
                    self.answer.is_done = True
                    continue
                self.answer.add(msgspec.json.decode(event))
                wanted -= 1
            if self.answer.error:
                return End.FAILED if self._is_beginning() else End.WRONG, self.answer.error
            if self._is_leaving(wanted):
                return End.LEFT if self._is_beginning() else End.WRONG, ""
        return self._judge(), ""

    def _is_leaving(self, wanted: int) -> bool:
        if self._leave is Kind.LEAVE_MID:
            return wanted <= 0
        return self._leave is Kind.LEAVE_END and self.answer.is_finished

    def _is_beginning(self) -> bool:
        return self._reference is None or self.answer.begins(self._reference)

    def _judge(self) -> End:
        if not (self.answer.is_done and self.answer.is_finished):
            return End.TRUNCATED
        if self._reference is not None and not self.answer.equals(self._reference):
            return End.WRONG
        return End.EQUAL

    def difference(self) -> str:
        """The first choice that is not as it should be."""
        if self._reference is None:
            return f"{self.answer}"[:300]
        for index, whole in sorted(self._reference.choices.items()):
            got = self.answer.choices.get(index)
            if got != whole:
                return f"choice {index} is {got}, expected {whole}"[:400]
        return f"is_done={self.answer.is_done} error={self.answer.error!r}"


async def _refusal(connection: Connection) -> tuple[End, str]:
    body = b"".join([piece async for piece in connection.pieces()])
    try:
        code = error_code(msgspec.json.decode(body))
    except (msgspec.DecodeError, AttributeError):
        code = ""
    # An internal error is typed for the client, but it is nobody's decision: it is a bug.
    typed = bool(code) and code != "internal_error"
    return (End.REFUSED if typed else End.UNTYPED), code or f"HTTP {connection.status}"


async def read_answer(address: Address, ask: Ask, bound_s: float) -> Answer:
    """The whole answer of a call. Raises BatonError when there is none."""
    caller = _Caller(address, ask, None, {}, None, random.Random(0))
    async with asyncio.timeout(bound_s):
        end, code = await caller.run()
    if end is not End.EQUAL:
        raise BatonError(f"the calm deployment did not answer {ask.name}: {end} {code}")
    return caller.answer
