"""Which source rank sends which heads of which layers to a destination rank."""

from typing import NamedTuple

from baton.core.remap.partition import Partition
from baton.core.remap.span import Span


class Share(NamedTuple):
    """Neighbouring heads of one stage's layers, from one source rank to one destination rank."""

    source_rank: int
    destination_rank: int
    source_replicas: tuple[int, ...]
    layers: Span
    heads: Span


def shares(
    source: Partition, destination: Partition, layers: Span, rotation: int = 0
) -> list[Share]:
    """Every layer and head of every destination rank once, each from one source rank.

    Where several source ranks hold a head, its takers are spread over them evenly and in order, so
    that equal partitions pair rank with rank. `rotation` turns the choice, for one transfer after
    another to use other replicas.
    """
    found: list[Share] = []
    for rank in range(destination.num_ranks):
        for stage, held in enumerate(source.stage_layers):
            common = held.common(destination.layers_of(rank)).common(layers)
            if not common.size:
                continue
            for head in range(*destination.heads_of(rank)):
                replicas = source.holders(stage, head)
                chosen = _chosen(source, destination, stage, head, rank, rotation)
                share = Share(chosen, rank, tuple(replicas), common, Span(head, head + 1))
                if found and _extends(found[-1], share):
                    heads = Span(found[-1].heads.start, head + 1)
                    found[-1] = found[-1]._replace(heads=heads)
                else:
                    found.append(share)
    return found


def _extends(before: Share, after: Share) -> bool:
    heads = before.heads._replace(stop=before.heads.stop + 1)
    return before._replace(heads=after.heads) == after and heads.stop == after.heads.stop


def _chosen(
    source: Partition, destination: Partition, stage: int, head: int, rank: int, rotation: int
) -> int:
    """One replica, by the taker's place among all takers of the head from this stage."""
    replicas, held = source.holders(stage, head), source.stage_layers[stage]
    takers = [
        taker
        for other, theirs in enumerate(destination.stage_layers)
        if theirs.common(held).size
        for taker in destination.holders(other, head)
    ]
    place = takers.index(rank) * len(replicas) // len(takers)
    return replicas[(place + rotation) % len(replicas)]
