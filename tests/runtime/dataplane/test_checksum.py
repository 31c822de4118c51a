"""The checksum depends on the concatenated bytes only, however they are cut."""

import numpy as np
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from baton.runtime.dataplane.checksum import PIECE_NBYTES, checksum, copy_and_checksum


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_scattered_runs_hash_like_their_concatenation(parts):
    views = [np.frombuffer(part, dtype=np.uint8) for part in parts]
    whole = b"".join(parts)
    copies = [np.zeros_like(view) for view in views]
    assert checksum(views) == xxhash.xxh3_64_intdigest(whole)
    assert copy_and_checksum(copies, views) == xxhash.xxh3_64_intdigest(whole)
    assert b"".join(copy.tobytes() for copy in copies) == whole


def test_pieces_and_a_stop_between_them():
    source = np.random.default_rng(0).integers(0, 256, 3 * PIECE_NBYTES, dtype=np.uint8)
    destination = np.zeros_like(source)
    assert copy_and_checksum([destination], [source]) == checksum([source])
    destination[:] = 0
    answers = iter([False, True])
    assert copy_and_checksum([destination], [source], stopped=lambda: next(answers)) is None
    assert np.array_equal(destination[:PIECE_NBYTES], source[:PIECE_NBYTES])
    assert not destination[PIECE_NBYTES:].any()
    assert checksum([source], lambda: True) is None
    assert copy_and_checksum([destination], [source], hashed=False) == 0
