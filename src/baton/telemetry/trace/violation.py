"""What a trace can do wrong: one rule broken, by one event."""

from enum import StrEnum

import msgspec

from baton.telemetry.trace.event import TraceEvent


class Fault(StrEnum):
    """The kind of damage, which tells what happened to the trace or to the request."""

    FOREIGN = "foreign"
    """Of something else: another program, or a request that this deployment never had."""
    TRUNCATED = "truncated"
    """A part is missing that must have been there."""
    REORDERED = "reordered"
    """What must come later comes earlier."""
    MIXED_GENERATION = "mixed-generation"
    """Events of one attempt stand in another."""
    DUPLICATE = "duplicate"
    """What happens once happened again."""


class Rule(StrEnum):
    """What every trace keeps; the text is what a broken one is told."""

    LINE = "every line is one whole event"
    VOCABULARY = "an event has a known name, said where it belongs, with all its fields"
    CLOCK = "the clock of a process never goes back"
    IDENTITY = "workers speak only of requests that the router took in"
    GENERATION = "workers speak only of generations that the router routed to them"
    ORDER = "a step comes after the step it needs"
    WHOLE = "no step is without the step it needs"
    COVERAGE = "every chunk and layer is visible before the one publication"
    PUBLICATION = "a generation is published once, and never after a later one"
    OBSERVATION = "a generation is observed by its steps or by its legs, as it was routed"
    END = "a request ends once"


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One broken rule. `event` is the one that broke it, where an event did."""

    fault: Fault
    rule: Rule
    text: str
    request_id: str = ""
    event: TraceEvent | None = None

    def __str__(self) -> str:
        return f"{self.fault}: {self.text} (rule: {self.rule})"
