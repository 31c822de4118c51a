"""Conversations over a pair: each turn begins with everything that was said before it."""

import asyncio
from statistics import mean

import msgspec

from baton.bench.cache.pair import DESTINATION, SOURCE, Pair, open_pair
from baton.bench.traffic import prompt_of
from baton.core.cache import Milestone


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """What every session does; lengths in tokens."""

    num_sessions: int = 2
    num_turns: int = 5
    first_tokens: int = 300
    new_tokens: int = 40
    answer_tokens: int = 24
    think_s: float = 0.25
    """Between an answer and the next prompt of anybody: a return may end in it."""

    def history(self, turn: int) -> int:
        """Tokens that were said before turn `turn`, counted from 1."""
        if turn == 1:
            return 0
        said = self.first_tokens + self.answer_tokens
        return said + (turn - 2) * (self.new_tokens + self.answer_tokens)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One answered turn of one session."""

    turn: int
    ttft_s: float
    prompt_tokens: int
    cached_tokens: int
    to_decode_nbytes: int
    to_prefill_nbytes: int
    is_returning: bool
    """A copy was still under way when the prompt came."""

    @property
    def rows(self) -> int:
        """Prompt rows that the prefill worker computed."""
        return self.prompt_tokens - self.cached_tokens


class Priced(msgspec.Struct, frozen=True, kw_only=True):
    """One finished answer whose history might go back."""

    saved_us: int
    cost_us: int
    pays: bool


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment of one round: every turn of its sessions."""

    milestone: Milestone
    round: int
    sessions: tuple[tuple[Turn, ...], ...]
    answers: tuple[tuple[int, ...], ...]
    """Of each session, all turns."""
    returns: tuple[Priced, ...]
    num_returned: int
    prefill_us_per_token: float
    transfer_bytes_per_us: float
    bytes_per_token: int

    def at(self, turn: int) -> list[Turn]:
        """That turn of every session."""
        return [turns[turn - 1] for turns in self.sessions]

    def mean_ttft_s(self, turn: int) -> float:
        """Over the sessions."""
        return mean(one.ttft_s for one in self.at(turn))


async def run_arm(model: str, milestone: Milestone, script: Script, number: int) -> Arm:
    """Round `number` of a milestone: a new deployment, its sessions turn by turn in turns."""
    async with open_pair(model, f"cache.milestone={milestone}") as pair:
        vocab = pair.info.vocab_size
        talks = [
            _Talk(f"round {number} session {session}", prompt_of(script.first_tokens, vocab, seed))
            for session in range(script.num_sessions)
            if (seed := 17 + 101 * number + 1009 * session)
        ]
        for turn in range(1, script.num_turns + 1):
            for index, talk in enumerate(talks):
                await talk.go_on(pair, turn, script)
                talk.prompt += prompt_of(script.new_tokens, vocab, 7 * turn + 31 * index + number)
        shot = (await pair.snapshots())[SOURCE]
        link = (await pair.snapshots())[DESTINATION].rates.transfer_bytes_per_us
        return Arm(
            milestone=milestone,
            round=number,
            sessions=tuple(tuple(talk.turns) for talk in talks),
            answers=tuple(tuple(talk.answers) for talk in talks),
            returns=tuple(
                Priced(
                    saved_us=int(event.data["saved_us"]),
                    cost_us=int(event.data["cost_us"]),
                    pays=bool(event.data["pays"]),
                )
                for event in pair.traced("return_priced")
                if event.request_id in {name for talk in talks for name in talk.request_ids}
            ),
            num_returned=pair.counter("copies_inserted"),
            prefill_us_per_token=shot.rates.prefill_us_per_token,
            transfer_bytes_per_us=shot.rates.transfer_bytes_per_us or link,
            bytes_per_token=pair.info.layout.bytes_per_token,
        )


class _Talk:
    """One session while it goes on."""

    def __init__(self, salt: str, prompt: tuple[int, ...]) -> None:
        self.salt = salt
        self.prompt = prompt
        self.turns: list[Turn] = []
        self.answers: list[int] = []
        self.request_ids: list[str] = []

    async def go_on(self, pair: Pair, turn: int, script: Script) -> None:
        """One prompt, its answer, and the time that a person takes to read it."""
        before = await pair.received()
        is_returning = pair.num_copies > 0
        timed = await pair.ask(self.prompt, script.answer_tokens, self.salt)
        await asyncio.sleep(script.think_s)
        after = await pair.received()
        self.turns.append(
            Turn(
                turn=turn,
                ttft_s=timed.ttft_s,
                prompt_tokens=len(self.prompt),
                cached_tokens=timed.cached_tokens,
                to_decode_nbytes=after[DESTINATION] - before[DESTINATION],
                to_prefill_nbytes=after[SOURCE] - before[SOURCE],
                is_returning=is_returning,
            )
        )
        self.answers += timed.token_ids
        self.request_ids.append(timed.request_id)
        self.prompt += tuple(timed.token_ids)
