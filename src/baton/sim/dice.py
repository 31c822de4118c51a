"""Draws that depend on what is decided, not on when: the n-th draw of a place is always the same.

A shared generator would let one removed fault change every later draw, and then no failing run
could be shrunk.
"""

import zlib

_MASK = (1 << 64) - 1


def roll(seed: int, place: str, number: int) -> float:
    """A uniform draw in [0, 1) for the `number`-th decision at `place`."""
    value = (seed * 0x9E3779B97F4A7C15 + zlib.crc32(place.encode()) * 0xBF58476D1CE4E5B9) & _MASK
    value = (value + number * 0x94D049BB133111EB) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((value ^ (value >> 31)) >> 11) / (1 << 53)
