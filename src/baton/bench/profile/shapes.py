"""Which steps are measured: a grid to fit, points off it to judge, and pairs of neighbours."""

import random
from collections.abc import Iterable

import msgspec

from baton.policy.phase_cost import PrefillRows
from baton.policy.service_profile import StepPhase

_ROWS = (1, 2, 4, 6, 7, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512)
_ROWS_QUICK = (1, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256)
_CHUNKS = (16, 64, 128, 256, 512)
_CONTEXTS = (64, 128, 512, 1024, 2048)
_CONTEXTS_QUICK = (64, 512, 1024)
_DECODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_VISIBLE = (16, 128, 512, 1024, 2048)
_MIXED_CHUNKS = (8, 32, 64, 128, 256)
_MIXED_DECODES = (1, 4, 8, 16)
_MIXED_VISIBLE = (128, 512)
NUM_HELD_OUT, NUM_HELD_OUT_QUICK = 16, 8
"""Points off the grid, for each phase."""
_TRIES = 50


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What one step holds; visible lengths count the current row, so they start at 2."""

    prefills: tuple[PrefillRows, ...] = ()
    visible_lengths: tuple[int, ...] = ()

    @property
    def num_rows(self) -> int:
        """Query rows of the step."""
        return sum(chunk.num_rows for chunk in self.prefills) + len(self.visible_lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """How far each sequence reaches, prompts first."""
        return (*(c.num_visible + c.num_rows for c in self.prefills), *self.visible_lengths)


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can hold, so that no step is asked for that it could never be given."""

    max_len: int
    max_rows: int
    max_seqs: int
    num_blocks: int
    block_size: int

    def holds(self, shape: Shape) -> bool:
        """Whether a worker with these bounds could run this step."""
        blocks = sum(-(-length // self.block_size) for length in shape.lengths)
        return (
            0 < shape.num_rows <= self.max_rows
            and len(shape.lengths) <= self.max_seqs
            and max(shape.lengths) <= self.max_len
            and blocks <= self.num_blocks
        )


def prefill(num_rows: int, num_visible: int = 0) -> Shape:
    """One chunk."""
    return Shape(prefills=(PrefillRows(num_rows=num_rows, num_visible=num_visible),))


def decode(count: int, visible: int) -> Shape:
    """A decode batch of equal lengths."""
    return Shape(visible_lengths=(visible,) * count)


def fit_grid(room: Room, *, quick: bool) -> list[Shape]:
    """The shapes that the fit sees, each once."""
    stride = 2 if quick else 1
    rows = {*(_ROWS_QUICK if quick else _ROWS), min(room.max_rows, room.max_len)}
    shapes = [prefill(num_rows) for num_rows in sorted(rows)]
    contexts = _CONTEXTS_QUICK if quick else _CONTEXTS
    shapes += [prefill(n, c) for n in _CHUNKS[::stride] for c in contexts]
    shapes += [decode(n, v) for n in _DECODES[::stride] for v in _VISIBLE]
    shapes += [
        Shape(prefills=prefill(n, context).prefills, visible_lengths=(visible,) * count)
        for n in _MIXED_CHUNKS[::stride]
        for count in _MIXED_DECODES[::stride]
        for visible in _MIXED_VISIBLE
        for context in (0, 512)[: 1 if count % 8 else 2]
    ]
    return list(dict.fromkeys(shape for shape in shapes if room.holds(shape)))


def held_out(room: Room, seed: int, *, quick: bool, known: Iterable[Shape]) -> list[Shape]:
    """Random steps off the grid, equally many of each phase; equal seeds give equal steps."""
    rng = random.Random(seed)
    taken = set(known)
    count = NUM_HELD_OUT_QUICK if quick else NUM_HELD_OUT
    shapes: list[Shape] = []
    for phase in StepPhase:
        wanted = len(shapes) + count
        for _ in range(_TRIES * count):  # a very small room may have nothing left to draw
            shape = _random_shape(rng, phase, room)
            if len(shapes) < wanted and room.holds(shape) and shape not in taken:
                taken.add(shape)
                shapes.append(shape)
    return shapes


def _random_shape(rng: random.Random, phase: StepPhase, room: Room) -> Shape:
    """Sizes are drawn evenly on a logarithmic scale: small steps are as common as large ones."""
    longest = min(room.max_len, _VISIBLE[-1])

    def size(low: int, high: int) -> int:
        return int(low * (max(low, high) / low) ** rng.random())

    prefills: list[PrefillRows] = []
    visible: list[int] = []
    if phase is not StepPhase.DECODE:
        for _ in range(rng.choice((1, 1, 1, 2))):
            num_rows = size(2, min(room.max_rows, longest))
            behind = rng.choice((0, rng.randrange(max(1, longest - num_rows))))
            prefills.append(PrefillRows(num_rows=num_rows, num_visible=behind))
    if phase is not StepPhase.PREFILL:
        most = size(2, longest)
        visible = [rng.randint(2, max(2, most)) for _ in range(size(1, room.max_seqs))]
    return Shape(prefills=tuple(prefills), visible_lengths=tuple(visible))


def contention_pairs(room: Room) -> list[tuple[Shape, Shape]]:
    """Pairs (measured, its neighbour's endless work): decodes beside a prefill and the reverse."""
    busy_prefill = _first_held(room, [prefill(n, n) for n in (256, 128, 64, 16, 4)])
    busy_decode = _first_held(room, [decode(n, v) for n, v in ((8, 512), (4, 128), (2, 32))])
    decodes = [decode(1, 512), decode(4, 512), decode(8, 512), decode(16, 128)]
    prefills = [prefill(64), prefill(128, 128), prefill(256, 256)]
    pairs = [(shape, busy_prefill) for shape in decodes] + [(s, busy_decode) for s in prefills]
    held = [pair for pair in pairs if room.holds(pair[0])]
    return held or [(decode(1, 16), busy_prefill), (prefill(8), busy_decode)]


def _first_held(room: Room, shapes: list[Shape]) -> Shape:
    return next((shape for shape in shapes if room.holds(shape)), shapes[-1])
