"""The rows of a sequence as regular groups of address pairs, seen along one pair of strides."""

from collections.abc import Iterable
from typing import NamedTuple

from baton.core.remap.box import BoxAxis
from baton.core.remap.span import Span


class TokenStrides(NamedTuple):
    """Bytes between blocks and between slots of one plane, on both sides."""

    source_block: int
    source_slot: int
    destination_block: int
    destination_slot: int


class TokenGroup(NamedTuple):
    """Rows from one pair of offsets on, along axes (outermost first)."""

    source_offset: int
    destination_offset: int
    tokens: Span
    axes: tuple[BoxAxis, ...]


class PlacedRun(NamedTuple):
    """Neighbouring slots within a pool block on both sides, and the positions they hold."""

    source_block: int
    source_slot: int
    destination_block: int
    destination_slot: int
    tokens: Span


def token_groups(runs: Iterable[PlacedRun], strides: TokenStrides) -> list[TokenGroup]:
    """Few groups with the rows of the runs, in order: first what continues along the slots of both
    sides (through the end of a block, where the pool allows it), then what repeats at a regular
    distance, then what repeats of that, as blocks within larger blocks do."""
    groups: list[TokenGroup] = []
    for run in runs:
        source = run.source_block * strides.source_block + run.source_slot * strides.source_slot
        into = run.destination_block * strides.destination_block
        into += run.destination_slot * strides.destination_slot
        slots = BoxAxis(run.tokens.size, strides.source_slot, strides.destination_slot)
        group = TokenGroup(source, into, run.tokens, (slots,))
        if groups and _continues(groups[-1], group):
            groups[-1] = _longer(groups[-1], group)
        else:
            groups.append(group)
    return _repeated(_repeated(groups))


def _continues(before: TokenGroup, after: TokenGroup) -> bool:
    slots = before.axes[0]
    return (
        after.source_offset == before.source_offset + slots.length * slots.source_stride
        and after.destination_offset
        == before.destination_offset + slots.length * slots.destination_stride
    )


def _longer(before: TokenGroup, after: TokenGroup) -> TokenGroup:
    slots = before.axes[0]
    axis = slots._replace(length=slots.length + after.axes[0].length)
    return before._replace(tokens=Span(before.tokens.start, after.tokens.stop), axes=(axis,))


def _repeated(groups: list[TokenGroup]) -> list[TokenGroup]:
    """Groups of equal form at equal distances become one with another axis."""
    found: list[TokenGroup] = []
    at = 0
    while at < len(groups):
        first, count = groups[at], 1
        step = _step(groups, at)
        while step and at + count < len(groups) and _step(groups, at + count - 1) == step:
            count += 1
        if count > 1 and step:
            tokens = Span(first.tokens.start, groups[at + count - 1].tokens.stop)
            axis = BoxAxis(count, *step)
            first = first._replace(tokens=tokens, axes=(axis, *first.axes))
        found.append(first)
        at += count
    return found


def _step(groups: list[TokenGroup], at: int) -> tuple[int, int] | None:
    """How far apart a group and the next one are, if they are of one form."""
    if at + 1 >= len(groups) or groups[at].axes != groups[at + 1].axes:
        return None
    here, after = groups[at], groups[at + 1]
    return (
        after.source_offset - here.source_offset,
        after.destination_offset - here.destination_offset,
    )
