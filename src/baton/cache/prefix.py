"""Prefix identity is a hash chain whose root is everything that must agree (0x09G)."""

import hashlib
from collections.abc import Sequence

from baton.core.layout import KVLayout, ModelIdentity
from baton.core.token_bytes import TOKEN_NBYTES, token_bytes


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
