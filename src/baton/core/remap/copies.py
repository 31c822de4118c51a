"""From a share of heads and layers to strided copies of its rows."""

from collections.abc import Iterator
from typing import NamedTuple

from baton.core.remap.addresses import PlaneAddresses, plane_addresses
from baton.core.remap.box import Box, BoxAxis, coalesce, stack
from baton.core.remap.copy import Copy
from baton.core.remap.partition import Partition
from baton.core.remap.senders import Share
from baton.core.remap.span import Span
from baton.core.remap.token_groups import PlacedRun, TokenGroup, TokenStrides, token_groups


class _Placed(NamedTuple):
    """A box of some tokens of one plane or of both, and the allocations that it joins."""

    planes: str
    tokens: Span
    source_region: int
    destination_region: int
    box: Box


class Copies:
    """Copies of one plan; what its shares have in common is worked out once."""

    def __init__(self, source: Partition, destination: Partition, runs: list[PlacedRun]) -> None:
        self._source, self._destination, self._runs = source, destination, runs
        self._groups: dict[TokenStrides, list[TokenGroup]] = {}
        self._from = [plane_addresses(source, rank) for rank in range(source.num_ranks)]
        self._to = [plane_addresses(destination, rank) for rank in range(destination.num_ranks)]
        self._apart = {*source.axes.apart, *destination.axes.apart}

    def of(self, share: Share) -> Iterator[Copy]:
        """The copies of one share: one a layer where layers are allocations of their own."""
        step = 1 if "layer" in self._apart else share.layers.size
        for layer in range(share.layers.start, share.layers.stop, step):
            part = share._replace(layers=Span(layer, layer + step))
            for placed in self._placed(part):
                yield _copy(part, placed)

    def _placed(self, share: Share) -> list[_Placed]:
        names = self._source.shape.planes
        sides = zip(self._from[share.source_rank], self._to[share.destination_rank], strict=True)
        planes = [self._plane(share, name, *pair) for name, pair in zip(names, sides, strict=True)]
        if len(planes) == 1 or "kv" in self._apart or not _are_alike(*planes):
            return [
                placed._replace(box=coalesce(placed.box)) for plane in planes for placed in plane
            ]
        found = []
        for first, second in zip(*planes, strict=True):
            boxes = stack(first.box, second.box)
            labels = ("kv",) if len(boxes) == 1 else names
            found += [
                first._replace(planes=label, box=box)
                for label, box in zip(labels, boxes, strict=True)
            ]
        return found

    def _plane(
        self, share: Share, name: str, out: PlaneAddresses, into: PlaneAddresses
    ) -> list[_Placed]:
        """Boxes of one plane: layers, groups of blocks, heads, slots, before they coalesce."""
        source_layer = share.layers.start - self._source.layers_of(share.source_rank).start
        source_head = share.heads.start - self._source.heads_of(share.source_rank).start
        layer = share.layers.start - self._destination.layers_of(share.destination_rank).start
        head = share.heads.start - self._destination.heads_of(share.destination_rank).start
        origin = out.offset(source_layer, 0, source_head, 0)
        target = into.offset(layer, 0, head, 0)
        axes = (
            BoxAxis(share.layers.size, out.strides["layer"], into.strides["layer"]),
            BoxAxis(share.heads.size, out.strides["head"], into.strides["head"]),
        )
        width = self._source.shape.widths[self._source.shape.planes.index(name)]
        return [
            _Placed(
                name,
                group.tokens,
                out.region(source_layer),
                into.region(layer),
                Box(
                    origin + group.source_offset,
                    target + group.destination_offset,
                    (*axes, *group.axes),
                    width,
                ),
            )
            for group in self._grouped(out, into)
        ]

    def _grouped(self, out: PlaneAddresses, into: PlaneAddresses) -> list[TokenGroup]:
        strides = TokenStrides(
            out.strides["block"], out.strides["slot"], into.strides["block"], into.strides["slot"]
        )
        if strides not in self._groups:
            self._groups[strides] = token_groups(self._runs, strides)
        return self._groups[strides]


def _are_alike(first: list[_Placed], second: list[_Placed]) -> bool:
    """K and V of unlike widths may group their tokens differently; mostly they do not."""
    return [placed.tokens for placed in first] == [placed.tokens for placed in second]


def _copy(share: Share, placed: _Placed) -> Copy:
    box = placed.box
    return Copy(
        source_rank=share.source_rank,
        destination_rank=share.destination_rank,
        source_replicas=share.source_replicas,
        layers=share.layers,
        heads=share.heads,
        planes=placed.planes,
        tokens=placed.tokens,
        source_region=placed.source_region,
        source_offset=box.source_offset,
        source_strides=tuple(axis.source_stride for axis in box.axes),
        destination_region=placed.destination_region,
        destination_offset=box.destination_offset,
        destination_strides=tuple(axis.destination_stride for axis in box.axes),
        counts=tuple(axis.length for axis in box.axes),
        run_nbytes=box.run_nbytes,
    )
