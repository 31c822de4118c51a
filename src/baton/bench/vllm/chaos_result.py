"""What a chaos run on vLLM servers injected, saw and found, and how it is shown."""

import msgspec
from rich.console import Console

_SHOWN = 20
_VIOLATIONS = ("wrong", "stuck", "untyped", "unrecovered", "leaks")


class VllmFault(msgspec.Struct, kw_only=True):
    """One fault: where and when it hit, what was under way, and what clients saw until it was over.

    It is over when every server answered again and one more answer had come by a handoff.
    """

    kind: str
    at_s: float
    """Since the first fault could begin."""
    server: str = ""
    epoch: int = 0
    """The life that it hit."""
    lasted_s: float = 0.0
    """Of a freeze."""
    seen: str = ""
    """What the connectors, or the gateway, said to be under way when it hit."""
    ended: dict[str, int] = {}
    """Handoffs that the server which was left ended because of it, by its connector's counters."""
    answers: dict[str, int] = {}
    """By mode where they were whole, else by the code of their error, or `left`."""
    recovery_s: float = -1.0
    """From the fault, or the end of a freeze; -1 where it did not come."""


class VllmChaos(msgspec.Struct, kw_only=True):
    """What a run did and found."""

    connector: str
    direction: str
    seed: int
    faults: list[VllmFault] = []
    not_injected: list[str] = []
    """Kinds for which there was no time."""
    equal: int = 0
    left: int = 0
    """Answers whose client left, as ordered."""
    errors: dict[str, int] = {}
    """Typed errors by their code."""
    modes: dict[str, int] = {}
    """Of whole answers."""
    wrong: list[str] = []
    stuck: list[str] = []
    untyped: list[str] = []
    """Answers that broke off without an end, or errors without a code."""
    unrecovered: list[str] = []
    leaks: list[str] = []
    duration_s: float = 0.0
    is_interrupted: bool = False

    @property
    def is_clean(self) -> bool:
        """Nothing wrong, stuck, untyped or left behind, and there was something to judge."""
        found = any(getattr(self, name) for name in _VIOLATIONS)
        return bool(self.equal and self.faults) and not (found or self.is_interrupted)


def print_chaos(result: VllmChaos, console: Console) -> None:
    """A line per fault, every violation, and one line at the end."""
    for fault in result.faults:
        console.print(_line(fault), markup=False, highlight=False, soft_wrap=True)
    for name in _VIOLATIONS:
        for text in getattr(result, name)[:_SHOWN]:
            console.print(f"{name}: {text}", style="red", markup=False, soft_wrap=True)
    if result.not_injected:
        console.print(f"no time for: {', '.join(result.not_injected)}", highlight=False)
    slowest = max((fault.recovery_s for fault in result.faults), default=0.0)
    violations = ", ".join(
        f"{len(getattr(result, name))} {name}"
        for name in _VIOLATIONS
        if name != "leaks" or not result.is_interrupted
    )
    verdict = "clean" if result.is_clean else "NOT CLEAN"
    console.print(
        f"{'INTERRUPTED' if result.is_interrupted else verdict}: {len(result.faults)} faults of "
        f"{len({fault.kind for fault in result.faults})} kinds; {result.equal} answers equal "
        f"({counted(result.modes)}), {result.left} left, typed errors: "
        f"{counted(result.errors) or 'none'}; {violations}; slowest recovery {slowest:.0f} s; "
        f"connector {result.connector}, {result.direction}, seed {result.seed}, "
        f"{result.duration_s:.0f} s",
        highlight=False,
        soft_wrap=True,
    )


def _line(fault: VllmFault) -> str:
    parts = [f"{fault.at_s:4.0f} s {fault.kind}"]
    if fault.lasted_s:
        parts.append(f"for {fault.lasted_s:.1f} s")
    if fault.server:
        parts.append(f"of {fault.server} epoch {fault.epoch}")
    if fault.seen:
        parts.append(f"while {fault.seen}")
    if fault.ended:
        parts.append(f"(the others: {counted(fault.ended)})")
    back = f"recovered in {fault.recovery_s:.1f} s" if fault.recovery_s >= 0 else "NOT RECOVERED"
    return f"{' '.join(parts)}: {counted(fault.answers) or 'no answers'}; {back}"


def counted(counts: dict[str, int]) -> str:
    """ "3 this, 1 that"."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
