"""The bare geometry of a strided copy, and how runs of it grow together."""

from typing import NamedTuple


class BoxAxis(NamedTuple):
    """One axis of a box: how long, and how far apart on each side."""

    length: int
    source_stride: int
    destination_stride: int


class Box(NamedTuple):
    """Runs of `run_nbytes`, repeated along axes, from one offset to another."""

    source_offset: int
    destination_offset: int
    axes: tuple[BoxAxis, ...]
    run_nbytes: int


def coalesce(box: Box) -> Box:
    """The same bytes in the fewest axes: what adjoins on both sides becomes one run, and two axes
    of which one continues the other on both sides become one. Axes are in destination order."""
    box, run = _forward(box), box.run_nbytes
    axes = [axis for axis in box.axes if axis.length > 1]
    axes.sort(key=lambda axis: (axis.destination_stride, axis.source_stride))
    grown: list[BoxAxis] = []
    for axis in axes:
        inner = grown[-1] if grown else BoxAxis(run, 1, 1)
        spans = (inner.length * inner.source_stride, inner.length * inner.destination_stride)
        if (axis.source_stride, axis.destination_stride) != spans:
            grown.append(axis)
        elif grown:
            grown[-1] = inner._replace(length=inner.length * axis.length)
        else:
            run *= axis.length
    return box._replace(axes=tuple(reversed(grown)), run_nbytes=run)


def _forward(box: Box) -> Box:
    """The same runs, walked from the lowest destination address: what descends on both sides (a
    free list that is a stack hands out blocks so) adjoins as well as what ascends."""
    source, destination, axes = box.source_offset, box.destination_offset, []
    for axis in box.axes:
        if axis.destination_stride < 0:
            source += (axis.length - 1) * axis.source_stride
            destination += (axis.length - 1) * axis.destination_stride
            axis = BoxAxis(axis.length, -axis.source_stride, -axis.destination_stride)
        axes.append(axis)
    return box._replace(source_offset=source, destination_offset=destination, axes=tuple(axes))


def stack(first: Box, second: Box) -> list[Box]:
    """Two planes of the same rows as one box, if they can be: as an axis of two, or as one run
    where the planes have unlike widths and adjoin."""
    if first.axes == second.axes and first.run_nbytes == second.run_nbytes:
        apart = BoxAxis(
            2,
            second.source_offset - first.source_offset,
            second.destination_offset - first.destination_offset,
        )
        return [coalesce(first._replace(axes=(*first.axes, apart)))]
    first, second = coalesce(first), coalesce(second)
    ends = (
        first.source_offset + first.run_nbytes,
        first.destination_offset + first.run_nbytes,
    )
    adjoins = ends == (second.source_offset, second.destination_offset)
    if adjoins and first.axes == second.axes:
        return [coalesce(first._replace(run_nbytes=first.run_nbytes + second.run_nbytes))]
    return [first, second]
