"""Which stage of which instance stands on which node: exact, or a reason why it cannot (0x08D)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

import msgspec

from baton.errors import ConfigError
from baton.hardware.parallel import Parallel


class CannotPlace(ConfigError):
    """A configuration that fits by its number of GPUs and still has no place on these nodes."""


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline stage of one instance."""

    instance: str
    stage: int
    num_gpus: int

    def __str__(self) -> str:
        return f"{self.instance}.s{self.stage}"


class Packing(msgspec.Struct, frozen=True, kw_only=True):
    """What stands on each node, in order; nodes that stay empty are not listed."""

    gpus_per_node: int
    nodes: tuple[tuple[Placed, ...], ...]

    @property
    def num_gpus_used(self) -> tuple[int, ...]:
        """Of each node."""
        return tuple(sum(one.num_gpus for one in node) for node in self.nodes)

    def node_of(self, instance: str, stage: int) -> int:
        """Where a stage stands."""
        for number, node in enumerate(self.nodes):
            if any(one.instance == instance and one.stage == stage for one in node):
                return number
        raise ConfigError(f"packing: no stage {stage} of {instance}")

    def draw(self) -> str:
        """One line for each node: its stages, and GPUs that stay idle as dots."""
        lines = []
        for number, node in enumerate(self.nodes):
            cells = [f"[{one} x{one.num_gpus}]" for one in node]
            idle = "." * (self.gpus_per_node - sum(one.num_gpus for one in node))
            lines.append(" ".join(filter(None, (f"node {number}:", *cells, idle))))
        return "\n".join(lines)


class Instances(msgspec.Struct, frozen=True, kw_only=True):
    """Equal instances of one phase, named p0, p1 and so on by their letter."""

    letter: str
    parallel: Parallel
    num: int

    @property
    def names(self) -> tuple[str, ...]:
        """Of each."""
        return tuple(f"{self.letter}{number}" for number in range(self.num))

    def segments(self, num_segments: int, name: str, segment: int) -> tuple[Placed, ...]:
        """The stages of one instance within one of so many equal parts of its pipeline."""
        inside = self.parallel.pp // num_segments
        return tuple(
            Placed(instance=name, stage=stage, num_gpus=self.parallel.tp)
            for stage in range(segment * inside, (segment + 1) * inside)
        )


def pack_free(groups: Sequence[Instances], num_nodes: int, gpus_per_node: int) -> Packing:
    """Anywhere: instances in one piece if that fits, else stage by stage (high affinity)."""
    whole = [
        one.segments(1, name, 0)
        for one in groups
        for name in one.names
        if one.parallel.gpus <= gpus_per_node
    ]
    cut = [
        one.segments(one.parallel.pp, name, stage)
        for one in groups
        for name in one.names
        if one.parallel.gpus > gpus_per_node
        for stage in range(one.parallel.pp)
    ]
    found = _pack([*whole, *cut], num_nodes, gpus_per_node)
    if found is None:
        stages = [(placed,) for item in whole for placed in item]
        found = _pack([*stages, *cut], num_nodes, gpus_per_node)
    if found is None:
        raise CannotPlace(_refusal(groups, num_nodes, gpus_per_node, "stage by stage"))
    return found


def pack_paired(
    prefill: Instances,
    decode: Instances,
    num_nodes: int,
    gpus_per_node: int,
    num_segments: int | None = None,
) -> Packing:
    """Stage j of every prefill and decode instance on one node, so that K/V never leaves it.

    Both pipelines are cut into equally many segments, by default as few as fit; segment j of all
    of them is one piece (low affinity).
    """
    divisors = common_divisors(prefill.parallel.pp, decode.parallel.pp)
    for count in divisors if num_segments is None else [num_segments]:
        pieces = [
            tuple(
                placed
                for group in (prefill, decode)
                for name in group.names
                for placed in group.segments(count, name, segment)
            )
            for segment in range(count)
        ]
        found = _pack(pieces, num_nodes, gpus_per_node)
        if found is not None:
            return found
    raise CannotPlace(
        _refusal(
            (prefill, decode),
            num_nodes,
            gpus_per_node,
            "with stage j of both phases on one node",
        )
    )


def common_divisors(first: int, second: int) -> list[int]:
    """Ascending."""
    return [
        number
        for number in range(1, min(first, second) + 1)
        if first % number == 0 and second % number == 0
    ]


def _refusal(groups: Sequence[Instances], num_nodes: int, gpus_per_node: int, how: str) -> str:
    wanted = " + ".join(f"{one.num} x {one.parallel}" for one in groups)
    needed = sum(one.num * one.parallel.gpus for one in groups)
    return (
        f"{wanted} need {needed} of {num_nodes * gpus_per_node} GPUs and cannot be placed {how} on "
        f"{num_nodes} nodes of {gpus_per_node}; use fewer or smaller instances, or larger nodes"
    )


Piece = tuple[Placed, ...]


def _pack(pieces: Sequence[Piece], num_nodes: int, capacity: int) -> Packing | None:
    """Pieces into nodes, whole: exact, by their sizes alone."""
    sizes = [sum(one.num_gpus for one in piece) for piece in pieces]
    if any(size > capacity for size in sizes) or sum(sizes) > num_nodes * capacity:
        return None
    filled = _fill(tuple(sorted(Counter(sizes).items(), reverse=True)), num_nodes, capacity)
    if filled is None:
        return None
    waiting: dict[int, list[Piece]] = {}
    for size, piece in zip(sizes, pieces, strict=True):
        waiting.setdefault(size, []).append(piece)
    nodes = []
    for content in filled:
        chosen = [waiting[size].pop(0) for size, num in content for _ in range(num)]
        nodes.append(tuple(placed for piece in chosen for placed in piece))
    return Packing(gpus_per_node=capacity, nodes=tuple(nodes))


Sizes = tuple[tuple[int, int], ...]
"""(GPUs of a piece, how many such pieces), largest first."""


@cache
def _fill(left: Sizes, num_nodes: int, capacity: int) -> tuple[Sizes, ...] | None:
    """What each node holds; None when it cannot be done, which was then tried every way.

    Each node takes a choice to which nothing more could be added, and at least one of the largest
    pieces that are left: both lose no solution.
    """
    if not left:
        return ()
    if num_nodes < 1 or sum(size * num for size, num in left) > num_nodes * capacity:
        return None
    for chosen in _choices(left, capacity):
        if chosen[0][1] == 0:
            continue
        rest = tuple(
            (size, num - taken)
            for (size, num), (_, taken) in zip(left, chosen, strict=True)
            if num > taken
        )
        found = _fill(rest, num_nodes - 1, capacity)
        if found is not None:
            return (tuple(one for one in chosen if one[1]), *found)
    return None


def _choices(left: Sizes, capacity: int) -> Iterator[Sizes]:
    """Maximal choices within a capacity, those with most of the largest first."""
    if not left:
        yield ()
        return
    (size, num), rest = left[0], left[1:]
    for taken in range(min(num, capacity // size), -1, -1):
        for others in _choices(rest, capacity - taken * size):
            used = taken * size + sum(one * count for one, count in others)
            if taken < num and used + size <= capacity:
                continue
            yield ((size, taken), *others)
