"""Tokens as bytes, the same on every machine: what digests and names are made of."""

import sys
from array import array
from collections.abc import Sequence

TOKEN_NBYTES = 4


def token_bytes(token_ids: Sequence[int]) -> bytes:
    """Four bytes a token, little end first. An array packs twice as fast as `struct`."""
    packed = array("I", token_ids)
    assert packed.itemsize == TOKEN_NBYTES
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
