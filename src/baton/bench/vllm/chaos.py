"""`baton chaos --engine vllm`: servers die and freeze, clients leave, and every answer is judged.

What a whole answer says must be what one server alone said before; an error must be typed; and at
the end nothing may be left: no request, no block, nothing that a connector still holds.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec
from rich.console import Console

from baton.bench.vllm.asking import Answer, ask
from baton.bench.vllm.bodies import LONG, SHORT, chaos_bodies
from baton.bench.vllm.cases import Body
from baton.bench.vllm.chaos_result import VllmChaos, VllmFault, print_chaos
from baton.bench.vllm.compare import ready_front, vocabulary_of
from baton.bench.vllm.faults import KINDS, Injector
from baton.bench.vllm.leaks import find_leaks
from baton.config import BatonConfig
from baton.errors import BatonError, ConfigError
from baton.runtime.notice import notice
from baton.runtime.vllm.serve import VllmFront, wait_complete

ASK_S = 200.0
"""Longer than the gateway gives a first token, and than a stalled stream may last."""
NUM_CLIENTS = 3
DEFAULT_MINUTES = 8.0
_PAUSE_S = (1.0, 4.0)
_STORM = 8
_LEAVE_S = (0.05, 2.0)
_P_LEAVE = 0.25
_THINK_S = (0.0, 1.0)
"""Between two requests of a client: a server that starts needs some of a small machine."""
_AFTER_ERROR_S = 0.5
_CALM_S = 60.0


class _Run:
    def __init__(self, front: VllmFront, config: BatonConfig, result: VllmChaos) -> None:
        seed = result.seed
        self._front = front
        self._timeout_s = config.cluster.start_timeout_s
        self._dice, self._client_dice = random.Random(seed), random.Random(seed + 1)
        self._bodies: list[Body] = []
        self._reference: list[Answer] = []
        self._session = aiohttp.ClientSession()
        self._injector = Injector(front, config.vllm.direction, self._dice, self._ask_long)
        self._go_on = asyncio.Event()
        """Clients wait while one chosen request is to be the only one under way."""
        self._num_open = 0
        self._fault: VllmFault | None = None
        self.result = result

    async def run(self, minutes: float | None, kinds: Sequence[str]) -> None:
        """Learn the answers, break things under load, then look what is left."""
        started_s = time.monotonic()
        async with self._session:
            await self._learn()
            stop = asyncio.Event()
            self._go_on.set()
            clients = [asyncio.create_task(self._client(stop)) for _ in range(NUM_CLIENTS)]
            try:
                await self._break_things(minutes, kinds)
            finally:
                stop.set()
                self._go_on.set()
                await asyncio.gather(*clients)
            for number in range(len(self._bodies)):
                await self._judge(number, await self._ask(number))
            self.result.leaks = await find_leaks(self._front.backend)
        self.result.duration_s = time.monotonic() - started_s

    async def _learn(self) -> None:
        """What a decode server answers when it computes everything itself."""
        assert self._front.processes is not None
        alone = self._front.processes.slots[-1].server
        vocabulary = await vocabulary_of(alone.url)
        self._bodies = chaos_bodies(vocabulary, self._front.backend.max_model_len)
        for body in self._bodies:
            salted = {**body, "cache_salt": uuid.uuid4().hex}
            answer = await ask(self._session, alone.url, salted, ASK_S)
            if answer.error:
                raise ConfigError(f"{alone.server_id} alone does not answer: {answer.error}")
            self._reference.append(answer)

    # -- faults --------------------------------------------------------------------------------

    async def _break_things(self, minutes: float | None, kinds: Sequence[str]) -> None:
        """Every kind once in a drawn order, and again and again where there is time for more."""
        began_s, left = time.monotonic(), list(kinds)
        self._dice.shuffle(left)
        never = self.result.not_injected = sorted(left)
        while time.monotonic() - began_s < 60 * (minutes or DEFAULT_MINUTES):
            if not left:
                left = self._dice.sample(list(kinds), len(kinds))
            await asyncio.sleep(self._dice.uniform(*_PAUSE_S))
            fault = VllmFault(kind=left.pop(), at_s=time.monotonic() - began_s)
            if fault.kind in never:
                never.remove(fault.kind)
            self.result.faults.append(fault)
            self._fault = fault
            notice("chaos", f"{fault.at_s:.0f} s: {fault.kind}")
            await self._inject(fault)
            if minutes is None and not never:
                return

    async def _inject(self, fault: VllmFault) -> None:
        """One fault, and what follows until handoffs work again."""
        try:
            if fault.kind == "storm":
                numbers = [self._client_dice.choice(SHORT + LONG) for _ in range(_STORM)]
                await asyncio.gather(*(self._leave(number) for number in numbers))
            else:
                await self._hit(fault)
            deadline_s = time.monotonic() + self._timeout_s
            await self._injector.wait_back(fault, self._timeout_s)
            await self._hand_over(deadline_s)
            fault.recovery_s = time.monotonic() - self._injector.over_s
        except BatonError as error:
            self.result.unrecovered.append(f"{fault.kind} at {fault.at_s:.0f} s: {error}")
        await self._injector.settle()
        if fault.server:
            fault.ended = await self._injector.endings(fault)

    async def _hit(self, fault: VllmFault) -> None:
        try:
            if fault.kind.endswith("-mid"):
                await self._calm()
            await self._injector.inject(fault)
        finally:
            self._go_on.set()

    async def _calm(self) -> None:
        self._go_on.clear()
        deadline_s = time.monotonic() + _CALM_S
        while self._num_open and time.monotonic() < deadline_s:
            await asyncio.sleep(0.02)

    async def _hand_over(self, deadline_s: float) -> None:
        """Return when a whole answer has come by a handoff again."""
        while True:
            answer = await self._ask(0)
            await self._judge(0, answer)
            if not answer.error and answer.mode == "disaggregated":
                return
            if time.monotonic() > deadline_s:
                raise BatonError(f"no handoff; the last answer was {answer.mode or answer.error}")
            await wait_complete(self._front, max(1.0, deadline_s - time.monotonic()))

    # -- clients -------------------------------------------------------------------------------

    async def _ask(self, number: int, into: Answer | None = None) -> Answer:
        body = {**self._bodies[number], "cache_salt": uuid.uuid4().hex}
        self._num_open += 1
        try:
            return await ask(self._session, self._front.url, body, ASK_S, into)
        finally:
            self._num_open -= 1

    async def _ask_long(self) -> None:
        number = self._client_dice.choice(LONG)
        await self._judge(number, await self._ask(number))

    async def _client(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._go_on.wait()
            await asyncio.sleep(self._client_dice.uniform(*_THINK_S))
            number = self._client_dice.choice(SHORT)
            if self._client_dice.random() < _P_LEAVE:
                await self._leave(number)
            else:
                await self._judge(number, await self._ask(number))

    async def _leave(self, number: int) -> None:
        read = Answer()
        asking = asyncio.create_task(self._ask(number, read))
        done, _ = await asyncio.wait([asking], timeout=self._client_dice.uniform(*_LEAVE_S))
        if done:
            await self._judge(number, asking.result())
            return
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        self.result.left += 1
        self._count("left")
        self._judge_part(number, read)

    async def _judge(self, number: int, answer: Answer) -> None:
        result = self.result
        if answer.error.startswith("TimeoutError"):
            result.stuck.append(f"request {number}: {answer.error}")
        elif answer.error and not answer.code:
            result.untyped.append(f"request {number}: {answer.error}")
        elif answer.error:
            result.errors[answer.code] = result.errors.get(answer.code, 0) + 1
            self._count(answer.code)
            self._judge_part(number, answer)
            await asyncio.sleep(_AFTER_ERROR_S)
        elif _said(answer) != _said(self._reference[number]):
            result.wrong.append(
                f"request {number} ({answer.mode}, {answer.reason}): {_said(answer)}, alone "
                f"{_said(self._reference[number])}"
            )
        else:
            result.equal += 1
            result.modes[answer.mode] = result.modes.get(answer.mode, 0) + 1
            self._count(answer.mode)

    def _judge_part(self, number: int, answer: Answer) -> None:
        """What came of an answer that did not end must be how the whole one begins."""
        for index, output in answer.outputs.items():
            whole = self._reference[number].output(index).token_ids
            if output.token_ids != whole[: len(output.token_ids)]:
                self.result.wrong.append(
                    f"request {number}, broken off: {output.token_ids}, alone {whole}"
                )

    def _count(self, end: str) -> None:
        if self._fault is not None:
            self._fault.answers[end] = self._fault.answers.get(end, 0) + 1


def _said(answer: Answer) -> list[tuple[int, list[int], str]]:
    return [(i, one.token_ids, one.finish_reason) for i, one in sorted(answer.outputs.items())]


def chaos_vllm(
    config: BatonConfig,
    console: Console,
    *,
    minutes: float | None,
    seed: int,
    only: Sequence[str],
    json_out: Path | None,
) -> int:
    """Run and print; 0 when clean, else 1.

    Without `minutes` every kind of fault comes once, and none begins after `DEFAULT_MINUTES`.
    Ctrl-C ends it with what was judged so far, and 130.
    """
    if config.vllm.is_attached:
        raise ConfigError("chaos kills servers; leave the URLs out, so that it starts its own")
    if not (config.cluster.prefill and config.cluster.decode):
        raise ConfigError(
            f"cluster.prefill is {config.cluster.prefill} and cluster.decode is "
            f"{config.cluster.decode}; handoffs need one of each at least"
        )
    if unknown := sorted(set(only) - set(KINDS)):
        raise ConfigError(f"--only {unknown[0]}: use one of {', '.join(KINDS)}")
    result = VllmChaos(
        connector=config.vllm.connector, direction=str(config.vllm.direction), seed=seed
    )
    try:
        asyncio.run(_chaos(config, minutes, only or KINDS, result))
    except KeyboardInterrupt:
        result.is_interrupted = True
    if json_out is not None:
        json_out.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
    print_chaos(result, console)
    return 130 if result.is_interrupted else 0 if result.is_clean else 1


async def _chaos(
    config: BatonConfig, minutes: float | None, kinds: Sequence[str], result: VllmChaos
) -> None:
    async with ready_front(config) as front:
        await _Run(front, config, result).run(minutes, kinds)
