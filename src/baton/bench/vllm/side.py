"""Asks one side every case, round by round; what follows from answers is built from its own."""

import asyncio
from collections.abc import Sequence

import aiohttp
from rich.console import Console

from baton.bench.vllm.asking import Answer, ask
from baton.bench.vllm.cases import Body, VllmAsk, VllmCase, VllmRound
from baton.core.ids import Role
from baton.errors import BatonError
from baton.runtime.vllm.serve import VllmFront, wait_complete

ASK_S = 240.0
_DEATH_S = 30.0
_POLL_S = 0.05

Answers = dict[tuple[str, str], Answer]
"""By case, and round and index within it."""


async def ask_side(
    url: str, front: VllmFront | None, cases: Sequence[VllmCase], salt: str, console: Console
) -> Answers:
    """Every answer of one side; without a front it is the plain server, and nobody is killed.

    Raises BatonError where the plain server does not answer: there is nothing to compare with.
    """
    answers: Answers = {}
    async with aiohttp.ClientSession() as session:
        for case in cases:
            last: list[tuple[Body, Answer]] = []
            for number, asked in enumerate(case.rounds):
                if asked.restart is not None and front is not None:
                    await _restart(front, asked.restart)
                last = await _ask_round(session, url, asked, last, salt + case.name, front is None)
                for index, (_, answer) in enumerate(last):
                    answers[case.name, f"{number}.{index}"] = answer
                    if front is None and answer.error:
                        raise BatonError(f"{case.name}: {url} alone answers {answer.error}")
    side = "plain vLLM" if front is None else "pair"
    console.print(f"{side}: {len(answers)} answers", highlight=False)
    return answers


async def _ask_round(
    session: aiohttp.ClientSession,
    url: str,
    asked: VllmRound,
    last: Sequence[tuple[Body, Answer]],
    salt: str,
    is_plain: bool,
) -> list[tuple[Body, Answer]]:
    bodies = [{**_body(one, last), "cache_salt": salt + one.salt} for one in asked.asks]
    work = [
        ask(session, url, body, ASK_S, give_up_after=one.give_up_after)
        for one, body in zip(asked.asks, bodies, strict=True)
    ]
    if asked.one_by_one and is_plain:
        answers = [await one for one in work]
    else:
        answers = list(await asyncio.gather(*work))
    return list(zip(bodies, answers, strict=True))


def _body(one: VllmAsk, last: Sequence[tuple[Body, Answer]]) -> Body:
    body = one.body
    if one.follows is not None:
        before, answer = last[one.follows]
        body = {**body, "prompt": before["prompt"] + answer.output(0).token_ids + body["prompt"]}
    if one.stop_from is not None:
        _, answer = last[one.stop_from]
        body = {**body, "stop": [stop_in(answer.output(0).text)]}
    return body


def stop_in(text: str) -> str:
    """A piece from the middle of an answer: three characters, or what there is."""
    middle = len(text) // 2
    return text[middle : middle + 3] or "the"


async def _restart(front: VllmFront, role: Role) -> None:
    """Kill the server of a role and wait for a pair with its next life."""
    assert front.processes is not None
    (slot, *_) = [slot for slot in front.processes.slots if slot.server.role is role]
    epoch = slot.server.epoch
    slot.kill()
    async with asyncio.timeout(_DEATH_S):
        while slot.server.is_up:
            await asyncio.sleep(_POLL_S)
    await wait_complete(front, front.backend.config.cluster.start_timeout_s)
    if slot.server.epoch == epoch:
        raise BatonError(f"{slot.server.server_id} came back as the life that was killed")
