"""Every milestone through the same conversations, and the line that decides."""

from collections.abc import Callable, Sequence
from statistics import mean, median

import msgspec
from rich.console import Console
from rich.table import Table

from baton.bench.cache.budget import Budget
from baton.bench.cache.talk import Arm, Script, Turn, run_arm
from baton.core.cache import Milestone

WANTED_SPEEDUP = 2.0
_ORDER = (
    Milestone.NONE,
    Milestone.BIDIRECTIONAL,
    Milestone.PREFILL,
    Milestone.PROMPT,
    Milestone.DECODE,
)
"""Neighbours in time see the same machine: first the two that the accept line compares."""
TITLE = "Milestones over the turns of a conversation"
_COLUMNS: tuple[tuple[str, Callable[[Turn], float]], ...] = (
    ("mean TTFT, ms", lambda one: one.ttft_s * 1e3),
    ("prompt rows computed", lambda one: one.rows),
    ("prefill to decode, KiB", lambda one: one.to_decode_nbytes / 1024),
    ("decode to prefill, KiB", lambda one: one.to_prefill_nbytes / 1024),
)


class Milestones(msgspec.Struct, frozen=True, kw_only=True):
    """All rounds of all arms."""

    script: Script
    arms: tuple[Arm, ...]

    def of(self, milestone: Milestone) -> list[Arm]:
        """The rounds of one milestone."""
        return [arm for arm in self.arms if arm.milestone is milestone]

    @property
    def milestones(self) -> list[Milestone]:
        """Those that were measured, the least first."""
        return [one for one in Milestone if self.of(one)]

    @property
    def rounds(self) -> list[int]:
        """Numbers of the rounds."""
        return sorted({arm.round for arm in self.arms})

    def speedups(self, milestone: Milestone, turn: int) -> list[float]:
        """TTFT of `none` over that of a milestone, for each session of each round of this run."""
        ratios = []
        for number in self.rounds:
            (base,) = (arm for arm in self.of(Milestone.NONE) if arm.round == number)
            (other,) = (arm for arm in self.of(milestone) if arm.round == number)
            pairs = zip(base.at(turn), other.at(turn), strict=True)
            ratios += [slow.ttft_s / fast.ttft_s for slow, fast in pairs]
        return ratios

    def same_answers(self, milestone: Milestone) -> tuple[int, int]:
        """Sessions whose every token is that of the same session without any cache, and all."""
        same = total = 0
        for number in self.rounds:
            (base,) = (arm for arm in self.of(Milestone.NONE) if arm.round == number)
            (other,) = (arm for arm in self.of(milestone) if arm.round == number)
            same += sum(a == b for a, b in zip(base.answers, other.answers, strict=True))
            total += len(base.answers)
        return same, total

    @property
    def speedup(self) -> float:
        """The median that the accept line is about."""
        return median(self.speedups(Milestone.BIDIRECTIONAL, self.script.num_turns))

    @property
    def is_met(self) -> bool:
        """Whether the accept line holds."""
        return self.speedup >= WANTED_SPEEDUP


async def measure_milestones(
    model: str,
    script: Script,
    num_rounds: int,
    budget: Budget,
    milestones: Sequence[Milestone] = _ORDER,
) -> Milestones:
    """Arms take turns, so that whatever else the machine does meets all of them."""
    arms = []
    for number in budget.rounds(num_rounds):
        order = list(milestones)
        for milestone in order if number % 2 == 0 else reversed(order):
            arm = await run_arm(model, milestone, script, number)
            arms.append(arm)
            last = arm.mean_ttft_s(script.num_turns) * 1000
            budget.said(
                f"round {number + 1}, {milestone}: turn {script.num_turns} after {last:.0f} ms"
            )
    return Milestones(script=script, arms=tuple(arms))


def print_milestones(found: Milestones, console: Console) -> None:
    """Limits first, then each figure by turn, then the line."""
    script = found.script
    console.print(
        f"[bold]{TITLE}[/bold]\n{script.num_sessions} sessions x {len(found.rounds)} rounds, "
        f"{script.num_turns} turns, first prompt {script.first_tokens} tokens, "
        f"+{script.new_tokens} each turn, answers of {script.answer_tokens}, "
        f"think time {script.think_s:g} s"
    )
    _print_limits(found, console)
    turns = range(1, script.num_turns + 1)
    for title, value in _COLUMNS:
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        table.add_column("milestone")
        for turn in turns:
            table.add_column(f"turn {turn}", justify="right")
        for milestone in found.milestones:
            ones = [[one for arm in found.of(milestone) for one in arm.at(turn)] for turn in turns]
            table.add_row(milestone, *(f"{mean(map(value, each)):,.0f}" for each in ones))
        console.print(table)
    _print_returns(found, console)
    _print_verdict(found, console)


def _print_limits(found: Milestones, console: Console) -> None:
    """What the last turn's history takes at least, computed or moved, at measured rates."""
    arms = found.arms
    rows = found.script.history(found.script.num_turns)
    row_us = median(arm.prefill_us_per_token for arm in arms)
    rate = median(arm.transfer_bytes_per_us for arm in arms)
    nbytes = rows * arms[0].bytes_per_token
    moved_ms = nbytes / rate / 1e3 if rate else 0.0
    console.print(
        f"limits at turn {found.script.num_turns}: history of {rows} rows; computing it takes "
        f"{rows * row_us / 1e3:.0f} ms at {1e6 / row_us:,.0f} rows/s; moving it {moved_ms:.1f} ms "
        f"({nbytes / 2**20:.1f} MiB at {rate / 1e3:.2f} GB/s)",
        highlight=False,
    )


def _print_returns(found: Milestones, console: Console) -> None:
    arms = found.of(Milestone.BIDIRECTIONAL)
    priced = [price for arm in arms for price in arm.returns]
    if not priced:
        console.print("returns: none was priced")
        return
    saved, cost = (
        mean(getattr(price, name) for price in priced) for name in ("saved_us", "cost_us")
    )
    console.print(
        f"returns: {len(priced)} priced, {sum(price.pays for price in priced)} pay, "
        f"{sum(arm.num_returned for arm in arms)} inserted; expected saving {saved / 1e3:.1f} ms "
        f"against a cost of {cost / 1e3:.2f} ms each; "
        f"{sum(one.is_returning for arm in arms for t in arm.sessions for one in t)} prompts came "
        "while a copy was under way",
        highlight=False,
    )


def _print_verdict(found: Milestones, console: Console) -> None:
    last = found.script.num_turns
    for milestone in found.milestones:
        same, total = found.same_answers(milestone)
        ratios = found.speedups(milestone, last)
        console.print(
            f"{milestone}: turn {last} {median(ratios):.2f}x of none's "
            f"({min(ratios):.2f} to {max(ratios):.2f}); {same} of {total} sessions answer as none",
            highlight=False,
        )
    verdict = "met" if found.is_met else "NOT met"
    console.print(
        f"accept: bidirectional's TTFT at turn {last} at least {WANTED_SPEEDUP:g}x lower than "
        f"none's, median over sessions: {found.speedup:.2f}x, {verdict}",
        highlight=False,
    )
