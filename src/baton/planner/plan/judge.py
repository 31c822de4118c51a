"""Which arm wins, by how much, and in one sentence that names its contract."""

import msgspec

from baton.goodput.slo import SLOTargets
from baton.planner.goodput.answer import Contract
from baton.planner.plan.fit import Fit
from baton.planner.plan.nothing import nothing_meets, nothing_serves
from baton.planner.plan.verdict import (
    CLOCKS,
    Margin,
    Outcome,
    Standing,
    Verdict,
    asked_text,
    binding_of,
    margin_of,
    per_s,
)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the verdict is about."""

    targets: SLOTargets
    contract: Contract
    gpus: int
    safety: float
    rate_per_s: float | None
    fit: Fit | None = None
    """Of the trace's requests into the largest instance."""

    @property
    def text(self) -> str:
        """Targets, share and contract."""
        return asked_text(self.targets, self.contract)


def judge(colocated: Standing | None, split: Standing | None, asked: Asked) -> Verdict:
    """The verdict; at least one arm must have been searched."""
    arms = [arm for arm in (colocated, split) if arm is not None]
    assert arms, "an empty space is refused before"
    margin = margin_of(
        colocated.answer if colocated else None, split.answer if split else None, asked.safety
    )
    rate = asked.rate_per_s
    if not any(arm.goodput_per_s > 0 for arm in arms):
        return nothing_meets(
            arms, margin, asked.text, asked.targets, asked.contract, asked.gpus, asked.fit
        )
    able = [arm for arm in arms if _able(arm, rate)]
    if not able:
        assert rate is not None, "an arm with a goodput serves it"
        return nothing_serves(arms, margin, asked.text, asked.gpus, rate)
    if len(able) == 1:
        other = next((arm for arm in arms if arm is not able[0]), None)
        outcome = Outcome.SPLIT if able[0] is split else Outcome.COLOCATE
        return _only(able[0], other, outcome, margin, asked)
    assert colocated is not None and split is not None
    if rate is not None and colocated.num_gpus != split.num_gpus:
        return _fewer(colocated, split, margin, asked, rate)
    return _between(colocated, split, margin, asked)


def _able(arm: Standing, rate_per_s: float | None) -> bool:
    return arm.goodput_per_s > 0 and (rate_per_s is None or (arm.at is not None and arm.at.passes))


def _serves(arm: Standing, asked: Asked) -> str:
    """Who serves how much, within what."""
    if asked.rate_per_s is None:
        return f"{arm.text} serves {per_s(arm.goodput_per_s)} requests/s within {asked.text}"
    return (
        f"{arm.text} serves {asked.rate_per_s:g} requests/s within {asked.text} on "
        f"{arm.num_gpus} GPUs"
    )


def _fewer(
    colocated: Standing, split: Standing, margin: Margin, asked: Asked, rate_per_s: float
) -> Verdict:
    """Both serve the rate, and one of them with fewer GPUs."""
    saves = colocated.num_gpus / split.num_gpus
    if saves > 1 + asked.safety:
        text = (
            f"Split: {_serves(split, asked)}; colocated needs {colocated.num_gpus} "
            f"({colocated.text})"
        )
        return _verdict(Outcome.SPLIT, text, margin, split, asked)
    why = f"split needs {split.num_gpus} ({split.text})"
    if saves > 1:
        why += f", fewer by no more than the safety margin of {asked.safety:.0%}"
    text = f"Colocate: {_serves(colocated, asked)}; {why}"
    return _verdict(Outcome.COLOCATE, text, margin, colocated, asked)


def _between(colocated: Standing, split: Standing, margin: Margin, asked: Asked) -> Verdict:
    """By the ratio of their goodputs; at a rate that both serve alike, that is their headroom."""
    ratio = margin.ratio
    assert ratio is not None, "both serve, so their seeds can be compared"
    shown = f"{ratio.value:.2f} times [{ratio.low:.2f}, {ratio.high:.2f}]"
    is_rate = asked.rate_per_s is not None
    does = "goes up to" if is_rate else "does"
    what = "the highest rate of" if is_rate else "what"
    best = f"{what} the best colocated plan{'' if is_rate else ' does'} ({colocated.text})"
    if margin.is_split_worth_it:
        text = f"Split: {_serves(split, asked)}, {'and up to ' if is_rate else ''}{shown} {best}"
        return _verdict(Outcome.SPLIT, text, margin, split, asked)
    if not margin.is_told_apart:
        text = (
            f"No difference within the error: split {does} {shown} "
            f"{'the highest rate of colocated' if is_rate else 'what colocated does'}; colocate, "
            f"which is simpler: {_serves(colocated, asked)}"
        )
        return _verdict(Outcome.NO_DIFFERENCE, text, margin, colocated, asked)
    that = "its highest rate" if is_rate else "that"
    why = (
        f"split {does} {shown} {that} ({split.text})"
        if ratio.value < 1
        else f"splitting gives {shown} {that} ({split.text}), which does not surely exceed the "
        f"safety margin of {margin.safety:.0%}"
    )
    text = f"Colocate: {_serves(colocated, asked)}; {why}"
    return _verdict(Outcome.COLOCATE, text, margin, colocated, asked)


def _only(
    winner: Standing, other: Standing | None, outcome: Outcome, margin: Margin, asked: Asked
) -> Verdict:
    word = "Split" if outcome is Outcome.SPLIT else "Colocate"
    rate = asked.rate_per_s
    lacks = "cannot be placed"
    if other is not None:
        clock = CLOCKS[binding_of(other.answer, other.at, asked.targets)]
        where = f"at {rate:g}/s on {other.num_gpus} GPUs" if rate is not None else "at any rate"
        lacks = f"({other.text}) does not {where}: its {clock} binds"
    name = "colocated" if outcome is Outcome.SPLIT else "split"
    text = f"{word}: {_serves(winner, asked)}; {name} {lacks}"
    return _verdict(outcome, text, margin, winner, asked)


def _verdict(
    outcome: Outcome, text: str, margin: Margin, winner: Standing, asked: Asked
) -> Verdict:
    binding = binding_of(winner.answer, winner.at, asked.targets)
    return Verdict(outcome=outcome, sentence=f"{text}.", margin=margin, binding=binding)
