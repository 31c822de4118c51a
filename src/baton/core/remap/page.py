"""Writes the generated parts of docs/remap.md: what every pairing costs in messages and runs.

Run `python -m baton.core.remap.page docs/remap.md`; all else in the page is kept.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from baton.core.generated_page import render_page
from baton.core.remap.axes import AXIS_ORDERS
from baton.core.remap.block_table import BlockTable
from baton.core.remap.cache_shape import CacheShape
from baton.core.remap.compatibility import REMEDIES
from baton.core.remap.partition import Partition, even_stages
from baton.core.remap.plan import plan_remap
from baton.core.remap.span import Span
from baton.core.remap.summary import PlanSummary, summarize
from baton.errors import RemapRefused

SIZES = (1, 2, 4, 8)
HEADS = (1, 2, 3, 4, 8)
STAGES = (1, 2, 4)
BLOCKS = (8, 16, 32)
ORDERS = ("baton", "LBHNC", "LBNHC")
NUM_TOKENS = 250
"""Of the prompts in the tables: the last block of every size is partly filled."""
NUM_LAYERS = 8


def _shape(num_kv_heads: int = 8, latent_dim: int = 0) -> CacheShape:
    return CacheShape(
        num_layers=NUM_LAYERS,
        num_kv_heads=num_kv_heads,
        head_dim=128,
        dtype_k="bfloat16",
        dtype_v="bfloat16",
        latent_dim=latent_dim,
    )


def _side(
    shape: CacheShape, order: str = "LBHNC", tp: int = 1, pp: int = 1, block_size: int = 16
) -> Partition:
    return Partition(
        shape=shape,
        axes=AXIS_ORDERS[order],
        tp_size=tp,
        stages=even_stages(shape.num_layers, pp),
        block_size=block_size,
        num_blocks=NUM_TOKENS // block_size + 9,
    )


def count(source: Partition, destination: Partition) -> PlanSummary:
    """A prompt whose blocks adjoin in both pools, as in pools with room."""
    out, into = (
        BlockTable(block_ids=tuple(range(first, first + -(-NUM_TOKENS // side.block_size))))
        for first, side in enumerate((source, destination))
    )
    return summarize(plan_remap(source, destination, out, into, Span(0, NUM_TOKENS)))


def cell(source: Callable[[], Partition], destination: Callable[[], Partition]) -> str:
    """Messages, runs and the smallest run of a pairing, or the name of its refusal."""
    try:
        found = count(source(), destination())
    except RemapRefused as refusal:
        return f"`{refusal.name}`"
    return f"{found.num_messages} / {found.num_fragments} / {size_text(found.smallest_run_nbytes)}"


def size_text(nbytes: int) -> str:
    """Bytes in the largest unit that leaves a whole one."""
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes / size:.4g} {unit}"
    return f"{nbytes} B"


def grid(
    corner: str,
    names: Sequence[object],
    cells: Callable[[int, int], str],
    columns: Sequence[object] | None = None,
) -> str:
    """A table with a row for each source and a column for each destination."""
    columns = names if columns is None else columns
    lines = [f"| {corner} | {' | '.join(map(str, columns))} |", "|---" * (len(columns) + 1) + "|"]
    for row, name in enumerate(names):
        found = [cells(row, column) for column in range(len(columns))]
        lines.append(f"| {name} | {' | '.join(found)} |")
    return "\n".join(lines) + "\n"


def tensor_part() -> str:
    """Every pair of tensor parallel sizes for every number of heads, and for latent rows."""
    shapes = [(f"{heads} K/V heads", _shape(heads)) for heads in HEADS]
    shapes.append(("latent rows (576 scalars)", _shape(1, 576)))
    names = [f"TP {tp}" for tp in SIZES]
    tables = []
    for title, shape in shapes:

        def one(row: int, column: int, shape: CacheShape = shape) -> str:
            return cell(lambda: _side(shape, tp=SIZES[row]), lambda: _side(shape, tp=SIZES[column]))

        tables.append(grid(f"{title}: from", [f"TP {tp}" for tp in SIZES], one, names))
    return "\n".join(tables)


def pipeline_part() -> str:
    """Every pair of pipeline sizes, at two tensor parallel sizes."""
    places = [(tp, pp) for tp in (1, 4) for pp in STAGES]
    names = [f"TP {tp} PP {pp}" for tp, pp in places]
    shape = _shape()

    def one(row: int, column: int) -> str:
        return cell(
            lambda: _side(shape, "LBHNC", *places[row]),
            lambda: _side(shape, "LBHNC", *places[column]),
        )

    return grid("from", names, one)


def block_part() -> str:
    """Every pair of block sizes in the orders that differ most."""
    shape = _shape()
    tables = []
    for order in ORDERS:

        def one(row: int, column: int, order: str = order) -> str:
            return cell(
                lambda: _side(shape, order, block_size=BLOCKS[row]),
                lambda: _side(shape, order, block_size=BLOCKS[column]),
            )

        tables.append(grid(f"`{order}`: from blocks of", BLOCKS, one))
    return "\n".join(tables)


def order_part() -> str:
    """Every pair of axis orders at equal splits and block sizes: runs and the smallest."""
    names, shape = list(AXIS_ORDERS), _shape()

    def one(row: int, column: int) -> str:
        text = cell(lambda: _side(shape, names[row]), lambda: _side(shape, names[column]))
        return text.removeprefix("1 / ")

    return grid("from", [f"`{name}`" for name in names], one)


def names_part() -> str:
    """The axis orders by name."""
    lines = ["| name | axes, outermost first | allocations | packing |", "|---|---|---|---|"]
    apart = {0: "one", 1: "one a layer", 2: "K and V of each layer"}
    for name, axes in AXIS_ORDERS.items():
        packing = axes.packing or "rows"
        lines.append(f"| `{name}` | `{axes.order}` | {apart[axes.num_apart]} | {packing} |")
    return "\n".join(lines) + "\n"


def refusals_part() -> str:
    """The fields of a cache that must agree, with what to do."""
    lines = ["| name | what to do |", "|---|---|"]
    lines += [f"| `{name}` | {remedy} |" for name, remedy in REMEDIES.items()]
    return "\n".join(lines) + "\n"


PARTS: dict[str, Callable[[], str]] = {
    "tensor splits": tensor_part,
    "pipeline splits": pipeline_part,
    "block sizes": block_part,
    "orders": order_part,
    "order names": names_part,
    "refusals": refusals_part,
}


def render(page: str) -> str:
    """The page with its tables renewed."""
    return render_page(page, PARTS, "docs/remap.md")


def main(arguments: Iterable[str]) -> None:
    """Rewrite each page named on the command line."""
    for name in arguments:
        path = Path(name)
        path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
