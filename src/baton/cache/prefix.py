"""Prefix identity is a hash chain whose root is everything that must agree (0x09G)."""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

from baton.core.layout import KVLayout, ModelIdentity
from baton.core.request import Request
from baton.core.token_bytes import TOKEN_NBYTES, token_bytes


@lru_cache(maxsize=4096)
def chain_root(identity: ModelIdentity, layout: KVLayout, tenant_id: str, salt: str) -> bytes:
    """Root of the chain: model, adapter, layout with block size, tenant and salt.

    Two caches with different roots never match, whatever their tokens are. Each part is length
    prefixed so that no two different tuples give the same bytes.
    """
    parts = (identity.digest, layout.digest, str(layout.block_size), tenant_id, salt)
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode()
        state.update(len(data).to_bytes(4, "little") + data)
    return state.digest()


def block_names(
    identity: ModelIdentity,
    layout: KVLayout,
    request: Request,
    token_ids: Sequence[int],
    known: Sequence[bytes] = (),
) -> list[bytes]:
    """Names of the full blocks of `token_ids` under the tenant and salt of `request`.

    `known` are the names of their first blocks, or of more: those are not computed again.
    """
    known = known[: len(token_ids) // layout.block_size]
    parent = known[-1] if known else None
    if parent is None:
        parent = chain_root(identity, layout, request.tenant_id, request.cache_salt)
    tail = token_ids[len(known) * layout.block_size :]
    return [*known, *block_hashes(parent, tail, layout.block_size)]


def extend_chain(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Hash of one full block after `parent`."""
    return _link(parent, token_bytes(token_ids))


def block_hashes(root: bytes, token_ids: Sequence[int], block_size: int) -> list[bytes]:
    """Chained hashes of the full blocks of a token sequence; a partial tail has no name."""
    hashes = []
    parent, data = root, token_bytes(token_ids)
    nbytes = block_size * TOKEN_NBYTES
    for start in range(0, len(data) - nbytes + 1, nbytes):
        parent = _link(parent, data[start : start + nbytes])
        hashes.append(parent)
    return hashes


def _link(parent: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(parent + data, digest_size=16).digest()
