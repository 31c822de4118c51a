"""X8: bytes in flight stay within the credit window, and one chunk of credit serialises."""

import msgspec

from baton.bench.effects.effect import Effect
from baton.bench.effects.rig import Handoff, layout_of, open_rig
from baton.bench.traffic import prompt_of

_PROMPT = 256
_BLOCKS = 4
_WINDOWS = (3, 1)
"""Chunks of credit."""
_ROUNDS = 3
_CHUNK_S = 0.002
"""What one chunk takes on the link: enough that the next ones queue behind it."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What one window let through; peaks over `n` handoffs, times of the middle one."""

    num_chunks: int
    """Size of the window."""
    capacity_nbytes: int
    peak_nbytes: int
    """Most bytes between an order and its read-back at any event of both data planes."""
    peak_ledger_nbytes: int
    """Highest byte credit that the source's heartbeats showed."""
    peak_chunks: int
    n: int
    moved_chunks: int
    makespan_ms: float
    """First order to last read-back, with every chunk ready at the start."""
    link_ms: float
    """Time on the link, all chunks together."""


def peak_in_flight(handoff: Handoff) -> tuple[int, int]:
    """Most bytes, and most chunks, ordered and not yet read back, over every event."""
    events = [(line.at_us, 1, line.nbytes) for line in handoff.put]
    events += [(line.at_us, -1, -line.nbytes) for line in handoff.visible]
    # Credit comes back before it is taken again: at the same microsecond the return is first.
    nbytes = chunks = peak_nbytes = peak_chunks = 0
    for _, chunk, change in sorted(events):
        nbytes, chunks = nbytes + change, chunks + chunk
        peak_nbytes, peak_chunks = max(peak_nbytes, nbytes), max(peak_chunks, chunks)
    return peak_nbytes, peak_chunks


async def _window(model: str, num_chunks: int, chunk_nbytes: int) -> Window:
    capacity = num_chunks * chunk_nbytes
    settings = ('schedule="request"', f"credit_nbytes={capacity}", f"chunk_nbytes={chunk_nbytes}")
    async with open_rig(model, [f"transfer.{setting}" for setting in settings]) as rig:
        length = min(_PROMPT, rig.info.max_model_len // 2)
        rig.set_link(chunk_nbytes / _CHUNK_S)
        handoffs = [
            await rig.ask(prompt_of(length, rig.info.vocab_size, 4), salt=f"{number}")
            for number in range(_ROUNDS)
        ]
        peak_ledger = rig.peak_inflight_nbytes
    peaks = [peak_in_flight(handoff) for handoff in handoffs]
    middle = sorted(handoffs, key=lambda one: one.makespan_us)[len(handoffs) // 2]
    return Window(
        num_chunks=num_chunks,
        capacity_nbytes=capacity,
        peak_nbytes=max(nbytes for nbytes, _ in peaks),
        peak_ledger_nbytes=peak_ledger,
        peak_chunks=max(chunks for _, chunks in peaks),
        n=len(handoffs),
        moved_chunks=len(middle.put),
        makespan_ms=middle.makespan_us / 1000,
        link_ms=sum(line.duration_us for line in middle.moved) / 1000,
    )


async def measure_credit(model: str) -> Effect:
    """The same handoffs under a window of three chunks and under one of a single chunk."""
    nbytes = _BLOCKS * (await layout_of(model)).layer_block_nbytes
    wide, one = [await _window(model, count, nbytes) for count in _WINDOWS]
    return judge_credit(wide, one)


def judge_credit(wide: Window, one: Window) -> Effect:
    """Both bounds, and the price of the narrow window."""
    bounded = all(
        max(window.peak_nbytes, window.peak_ledger_nbytes) <= window.capacity_nbytes
        for window in (wide, one)
    )
    full = wide.peak_chunks == wide.num_chunks
    shown = "; ".join(
        f"credit of {window.num_chunks} x {window.capacity_nbytes // window.num_chunks:,} B: peak "
        f"{window.peak_nbytes:,} of {window.capacity_nbytes:,} B in flight at {window.n} x "
        f"{2 * window.moved_chunks} events ({window.peak_ledger_nbytes:,} in the source's "
        f"heartbeats), {window.peak_chunks} chunks at most, {window.makespan_ms:.0f} ms for "
        f"{window.moved_chunks} chunks of {window.link_ms:.0f} ms on the link"
        for window in (wide, one)
    )
    return Effect(
        id="X8",
        title="Credit window: staging bytes in flight",
        measured=f"{shown}; {one.makespan_ms / wide.makespan_ms:.2f}x the time",
        accept=(
            "never above capacity, the wide window filled; with one chunk of credit one chunk in "
            "flight, and slower than the link alone and than the wide window"
        ),
        met=bounded
        and full
        and one.peak_chunks == 1
        and one.makespan_ms > max(wide.makespan_ms, one.link_ms),
        figures={"windows": [wide, one]},
    )
