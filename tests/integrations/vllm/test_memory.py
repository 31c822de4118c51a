"""vLLM's cache as the data plane sees it: whole blocks, wherever layers and blocks lie."""

import ctypes

import numpy as np
import pytest

from baton.errors import ConfigError
from baton.integrations.vllm.memory import BorrowedArena, LayerView, cache_map, fits, put_runs

LAYERS, BLOCKS, HEADS, SLOTS, CONTENT = 3, 5, 2, 4, 8


def layers_of(cache):
    """Views of an array [layers, blocks, ...] as vLLM's tensors give themselves."""
    return [
        LayerView(
            name=f"l{index}",
            address=layer.ctypes.data,
            shape=layer.shape,
            stride_nbytes=layer.strides,
            item_nbytes=layer.itemsize,
        )
        for index, layer in enumerate(cache)
    ]


def array(order):
    """Logical [L, B, H, N, C], stored in another order of axes."""
    sizes = (LAYERS, BLOCKS, HEADS, SLOTS, CONTENT)
    stored = np.arange(np.prod(sizes), dtype=np.float32).reshape([sizes[axis] for axis in order])
    return stored, stored.transpose([order.index(axis) for axis in range(5)])


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (0, 1, 3, 2, 4), (1, 0, 2, 3, 4)])
def test_a_move_of_whole_blocks_moves_exactly_them(order):
    stored, cache = array(order)
    other_stored, other = array(order)
    other_stored[:] = -1
    _, nbytes, here = cache_map(layers_of(cache))
    _, other_nbytes, there = cache_map(layers_of(other))
    assert nbytes == stored.nbytes and fits(here, nbytes) and not fits(here, nbytes - 1)
    source, target = stored.reshape(-1).view(np.uint8), other_stored.reshape(-1).view(np.uint8)
    whole = ((0, 0, here.block_nbytes),)
    for local, remote, size in put_runs(here, there, range(1, 3), (4, 0), (1, 2), whole):
        target[remote : remote + size] = source[local : local + size]
    for layer in (1, 2):
        assert (other[layer, 1] == cache[layer, 4]).all()
        assert (other[layer, 2] == cache[layer, 0]).all()
    assert (other[0] == -1).all() and (other[:, [0, 3, 4]] == -1).all()
    assert other_nbytes == nbytes


@pytest.mark.parametrize("order", [(0, 2, 1, 3, 4), (1, 2, 0, 3, 4)])
def test_blocks_that_lie_in_pieces_are_refused(order):
    with pytest.raises(ConfigError, match="every block must be dense"):
        cache_map(layers_of(array(order)[1]))


def test_layers_that_lie_anywhere_are_refused():
    _, cache = array((0, 1, 2, 3, 4))
    views = layers_of(cache)
    with pytest.raises(ConfigError, match="follow each other"):
        cache_map([views[0], views[2], views[1]])


def test_borrowed_memory_is_the_owners_own():
    owned = (ctypes.c_uint8 * 8192)()
    arena = BorrowedArena("w", 1, ctypes.addressof(owned), 8192)
    arena.buffer[17] = 5
    assert owned[17] == 5 and arena.nbytes == 8192
    arena.close()
