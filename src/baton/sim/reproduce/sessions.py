"""MemServe's steps on a session of three turns: which rows move, and when a split loses (R25).

Each turn's prompt is all of the last one, its answer, and new words of the user.
"""

from itertools import pairwise

import msgspec

from baton.core.cache import Milestone
from baton.core.ids import Purpose, Role
from baton.sim.replay.engine import TOKEN_ID
from baton.sim.replay.replay import replay_counted
from baton.sim.replay.setup import ReplaySetup
from baton.sim.reproduce.check import Check
from baton.sim.simulate.hardware import MACHINES, MachineCosts
from baton.sim.simulate.plan import HARDWARE_DEFAULTS, read_config
from baton.workload.arrivals import poisson, with_arrivals
from baton.workload.request import Workload, WorkloadRequest

BLOCK_SIZE = 16
FIRST_PROMPT, ANSWER, NEXT_WORDS = 6400, 320, 160
NUM_TURNS = 3
THINK_US = 60_000_000
_COSTS = MachineCosts(MACHINES["a100x8-llama70b"])


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one turn."""

    prefill: int
    """Computed for its prompt."""
    sent: int
    """From prefill to decode."""
    returned: int
    """From decode back to prefill."""


def prompt_length(turn: int) -> int:
    """Of a turn, from 0."""
    return FIRST_PROMPT + turn * (ANSWER + NEXT_WORDS)


def expected(milestone: Milestone, turn: int) -> Turn:
    """By hand: whole blocks of what each side has named, and what the other lacks of them.

    The last token of an answer is never fed back, so its row does not exist.
    """
    length = prompt_length(turn)
    before = prompt_length(turn - 1) if turn else 0
    known = _whole(before + ANSWER - 1) if turn else 0
    with_answers = milestone.decode_keeps_answers
    at_decode = known if with_answers else _whole(before)
    at_prefill = known if milestone is Milestone.BIDIRECTIONAL else _whole(before)
    returns = _whole(length + ANSWER - 1) - _whole(length)
    return Turn(
        prefill=length - (0 if milestone is Milestone.NONE else at_prefill),
        sent=length - (at_decode if milestone.decode_keeps_prompts else 0),
        returned=returns if milestone is Milestone.BIDIRECTIONAL else 0,
    )


def _whole(num_tokens: int) -> int:
    return num_tokens // BLOCK_SIZE * BLOCK_SIZE


def turns_of(milestone: Milestone) -> list[Turn]:
    """What each turn adds, as the workers did it: sessions of one, two and three turns differ."""
    sums = [_served(milestone, num_turns) for num_turns in range(NUM_TURNS + 1)]
    return [
        Turn(
            prefill=now.prefill - before.prefill,
            sent=now.sent - before.sent,
            returned=now.returned - before.returned,
        )
        for before, now in pairwise(sums)
    ]


def _served(milestone: Milestone, num_turns: int) -> Turn:
    if not num_turns:
        return Turn(prefill=0, sent=0, returned=0)
    workload = Workload(
        name="session",
        source=f"{num_turns} turns",
        requests=tuple(
            WorkloadRequest(
                arrival_us=turn * THINK_US,
                num_prompt_tokens=prompt_length(turn),
                num_output_tokens=ANSWER,
            )
            for turn in range(num_turns)
        ),
    )
    records, counts = replay_counted(
        workload,
        _setup(["cluster.prefill=1", "cluster.decode=1", f"cache.milestone={milestone}"]),
        _COSTS,
        prompts=_prompt,
        rest_us=THINK_US,
    )
    assert all(record.num_output_tokens == ANSWER for record in records)
    token_nbytes = _COSTS.machine.token_nbytes
    moved = {
        purpose: counts.moved_nbytes_for.get(purpose, 0) // token_nbytes for purpose in Purpose
    }
    lengths = sum(one.num_prompt_tokens for one in workload.requests)
    return Turn(
        prefill=lengths - sum(counts.num_cached_tokens),
        sent=moved[Purpose.HANDOFF],
        returned=moved[Purpose.INSERT],
    )


def _prompt(turn: int) -> tuple[int, ...]:
    """The first words, and for each turn so far an answer and the next words."""
    tokens = [2] * FIRST_PROMPT
    for number in range(turn):
        tokens += [TOKEN_ID] * ANSWER + [3 + number] * NEXT_WORDS
    return tuple(tokens)


def _setup(overrides: list[str]) -> ReplaySetup:
    config = read_config(
        None, [f"worker.block_size={BLOCK_SIZE}", *overrides], defaults=HARDWARE_DEFAULTS
    )
    setup = ReplaySetup.from_config(config, max_model_len=prompt_length(NUM_TURNS))
    return msgspec.structs.replace(setup, num_blocks=50_000, shares_memory=False)


REACT_RATE, REACT_NUM, REACT_PROMPT, REACT_ANSWER = 2.5, 400, 3000, 32


def react_ms(roles: tuple[Role, ...], milestone: Milestone, seed: int) -> float:
    """Mean time to the end of long prompts with short answers on two nodes."""
    request = WorkloadRequest(
        arrival_us=0, num_prompt_tokens=REACT_PROMPT, num_output_tokens=REACT_ANSWER
    )
    workload = with_arrivals(
        Workload(name="react", source="written", requests=(request,) * REACT_NUM),
        poisson(REACT_NUM, REACT_RATE, seed),
    )
    counts = {f"cluster.{role}": roles.count(role) for role in Role}
    overrides = [f"{name}={num}" for name, num in counts.items()]
    records, _ = replay_counted(
        workload, _setup([*overrides, f"cache.milestone={milestone}"]), _COSTS
    )
    return sum(one.end_us - one.scheduled_us for one in records) / len(records) / 1000


def session_checks() -> list[Check]:
    """Every turn of every milestone exactly, and the case in which a split loses."""
    checks = []
    for milestone in Milestone:
        for number, found in enumerate(turns_of(milestone)):
            wanted = expected(milestone, number)
            for name in Turn.__struct_fields__:
                published = getattr(wanted, name)
                checks.append(
                    Check(
                        target="r25",
                        what=f"{milestone}, turn {number + 1}: rows {name}",
                        published=str(published),
                        measured=getattr(found, name),
                        low=published,
                        high=published,
                    )
                )
    ratios = []
    for seed in range(3):
        split = react_ms((Role.PREFILL, Role.DECODE), Milestone.NONE, seed)
        ratios.append(split / react_ms((Role.MIXED, Role.MIXED), Milestone.NONE, seed))
    checks.append(
        Check(
            target="r25",
            what="long prompts, short answers, 2 nodes: split / colocated",
            published="1.41",
            measured=min(ratios),
            low=1.05,
        )
    )
    return checks
