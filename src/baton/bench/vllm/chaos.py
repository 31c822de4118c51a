"""`baton chaos --engine vllm`: servers die and freeze, clients leave, and every answer is judged.

What a whole answer says must be what one server alone said before; an error must be typed; and at
the end nothing may be left: no request, no block, nothing that a connector still holds.
"""

import asyncio
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec
from rich.console import Console

from baton.bench.vllm.asking import Answer, ask
from baton.bench.vllm.cases import Body, text_of
from baton.bench.vllm.compare import ready_front
from baton.bench.vllm.leaks import find_leaks
from baton.config import BatonConfig
from baton.errors import ConfigError
from baton.runtime.vllm.processes import ServerProcess
from baton.runtime.vllm.serve import VllmFront, wait_complete

ASK_S = 300.0
NUM_CLIENTS = 3
KINDS = ("kill-prefill", "kill-decode", "freeze-prefill", "freeze-decode", "storm")
_FREEZE_S = (0.5, 3.0)
_PAUSE_S = (2.0, 8.0)
_STORM = 8
_LEAVE_S = (0.05, 2.0)
_P_LEAVE = 0.25


class VllmChaos(msgspec.Struct, kw_only=True):
    """What a run did and found."""

    connector: str
    seed: int
    faults: dict[str, int] = {}
    equal: int = 0
    left: int = 0
    """Answers whose client left, as ordered."""
    errors: dict[str, int] = {}
    """Typed errors, by status or end of stream."""
    modes: dict[str, int] = {}
    wrong: list[str] = []
    stuck: list[str] = []
    leaks: list[str] = []
    recoveries_s: list[float] = []
    """From each kill to when every server and a pair were back."""
    duration_s: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Nothing wrong, stuck or left behind, and there was something to judge."""
        return bool(self.equal) and not (self.wrong or self.stuck or self.leaks)


class _Run:
    def __init__(self, front: VllmFront, config: BatonConfig, seed: int) -> None:
        self._front = front
        self._dice = random.Random(seed)
        self._bodies = [_body(i) for i in range(6)]
        self._reference: list[Answer] = []
        self._session = aiohttp.ClientSession()
        self._faults: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._modes: Counter[str] = Counter()
        self.result = VllmChaos(connector=config.vllm.connector, seed=seed)

    async def run(self, seconds: float, kinds: Sequence[str], timeout_s: float) -> None:
        """Learn the answers, break things under load, then look what is left."""
        started_s = time.monotonic()
        async with self._session:
            await self._learn()
            stop = asyncio.Event()
            clients = [asyncio.create_task(self._client(stop)) for _ in range(NUM_CLIENTS)]
            try:
                end_s = time.monotonic() + seconds
                while time.monotonic() < end_s:
                    await asyncio.sleep(self._dice.uniform(*_PAUSE_S))
                    await self._fault(self._dice.choice(list(kinds)), timeout_s)
            finally:
                stop.set()
                await asyncio.gather(*clients)
            await wait_complete(self._front, timeout_s)
            # A gauge of a server is as old as its last step: one more request makes it fresh.
            await self._judge(0, await self._ask(0))
            self.result.leaks = await find_leaks(self._front.backend)
        result = self.result
        result.faults, result.errors = dict(self._faults), dict(self._errors)
        result.modes, result.duration_s = dict(self._modes), time.monotonic() - started_s

    async def _learn(self) -> None:
        """What a decode server answers when it computes everything itself."""
        assert self._front.processes is not None
        alone = self._front.processes.slots[-1].server
        for body in self._bodies:
            salted = {**body, "cache_salt": uuid.uuid4().hex}
            answer = await ask(self._session, alone.url, salted, ASK_S)
            if answer.error:
                raise ConfigError(f"{alone.server_id} alone does not answer: {answer.error}")
            self._reference.append(answer)

    async def _ask(self, number: int) -> Answer:
        body = {**self._bodies[number], "cache_salt": uuid.uuid4().hex}
        return await ask(self._session, self._front.url, body, ASK_S)

    async def _client(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            number = self._dice.randrange(len(self._bodies))
            if self._dice.random() < _P_LEAVE:
                await self._leave(number)
                continue
            await self._judge(number, await self._ask(number))

    async def _leave(self, number: int) -> None:
        asking = asyncio.create_task(self._ask(number))
        done, _ = await asyncio.wait([asking], timeout=self._dice.uniform(*_LEAVE_S))
        if done:
            await self._judge(number, asking.result())
            return
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        self.result.left += 1

    async def _judge(self, number: int, answer: Answer) -> None:
        if answer.error.startswith("TimeoutError"):
            self.result.stuck.append(f"request {number}: {answer.error}")
        elif answer.error:
            self._errors[str(answer.status) if answer.status != 200 else "error event"] += 1
            await asyncio.sleep(0.5)
        elif _said(answer) != _said(self._reference[number]):
            self.result.wrong.append(
                f"request {number} ({answer.mode}, {answer.reason}): {_said(answer)}, alone "
                f"{_said(self._reference[number])}"
            )
        else:
            self.result.equal += 1
            self._modes[answer.mode] += 1

    async def _fault(self, kind: str, timeout_s: float) -> None:
        self._faults[kind] += 1
        if kind == "storm":
            numbers = [self._dice.randrange(len(self._bodies)) for _ in range(_STORM)]
            await asyncio.gather(*(self._leave(number) for number in numbers))
            return
        action, role = kind.split("-")
        slot = self._slot(role)
        if action == "freeze":
            slot.kill(signal.SIGSTOP)
            await asyncio.sleep(self._dice.uniform(*_FREEZE_S))
            slot.kill(signal.SIGCONT)
            return
        began_s = time.monotonic()
        slot.kill()
        while slot.server.is_up:
            await asyncio.sleep(0.05)
        await wait_complete(self._front, timeout_s)
        self.result.recoveries_s.append(time.monotonic() - began_s)

    def _slot(self, role: str) -> ServerProcess:
        assert self._front.processes is not None
        slots = [slot for slot in self._front.processes.slots if slot.server.role == role]
        return self._dice.choice(slots)


def _body(number: int) -> Body:
    body: Body = {
        "prompt": text_of(30 + 25 * number, 60 + number),
        "max_tokens": 6 + number,
        "temperature": 0,
        "return_token_ids": True,
        "ignore_eos": True,
    }
    if number % 2:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _said(answer: Answer) -> list[tuple[int, list[int], str]]:
    return [(i, one.token_ids, one.finish_reason) for i, one in sorted(answer.outputs.items())]


def chaos_vllm(
    config: BatonConfig,
    console: Console,
    *,
    minutes: float,
    seed: int,
    only: Sequence[str],
    json_out: Path | None,
) -> int:
    """Run and print; 0 when clean, else 1."""
    if config.vllm.is_attached:
        raise ConfigError("chaos kills servers; leave the URLs out, so that it starts its own")
    if unknown := sorted(set(only) - set(KINDS)):
        raise ConfigError(f"--only {unknown[0]}: use one of {', '.join(KINDS)}")
    result = asyncio.run(_chaos(config, minutes, seed, only or KINDS))
    if json_out is not None:
        json_out.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
    _print(result, console)
    return 0 if result.is_clean else 1


async def _chaos(config: BatonConfig, minutes: float, seed: int, kinds: Sequence[str]) -> VllmChaos:
    async with ready_front(config) as front:
        run = _Run(front, config, seed)
        await run.run(60 * minutes, kinds, config.cluster.start_timeout_s)
        return run.result


def _print(result: VllmChaos, console: Console) -> None:
    for name in ("wrong", "stuck", "leaks"):
        for text in getattr(result, name)[:20]:
            console.print(f"{name}: {text}", style="red", markup=False, soft_wrap=True)
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(result.faults.items()))
    errors = ", ".join(f"{count} {kind}" for kind, count in sorted(result.errors.items()))
    modes = ", ".join(f"{count} {mode}" for mode, count in sorted(result.modes.items()))
    slowest = max(result.recoveries_s, default=0.0)
    console.print(
        f"{'clean' if result.is_clean else 'NOT CLEAN'}: {faults or 'no faults'}; "
        f"{result.equal} answers equal ({modes}), {result.left} left, typed errors: "
        f"{errors or 'none'}; {len(result.wrong)} wrong, {len(result.stuck)} stuck, "
        f"{len(result.leaks)} leaked; slowest recovery {slowest:.0f} s; connector "
        f"{result.connector}, seed {result.seed}, {result.duration_s:.0f} s",
        highlight=False,
        soft_wrap=True,
    )
