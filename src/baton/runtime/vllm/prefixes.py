"""Which server holds which prefix: vLLM's K/V events, told to the router's own block index.

vLLM names blocks by hashes that only the server itself can compute. Its events carry the tokens, so
each block gets a name of ours, which chains tokens, salt and adapter; what cannot be named is not
claimed, and a claim that does not hold costs time and never an answer.
"""

import hashlib
from collections.abc import Sequence

from baton.cache.index import BlockIndex
from baton.cache.prefix import block_hashes, extend_chain
from baton.core.cache import Place, Tier
from baton.runtime.vllm.events import BlockRemoved, BlockStored, Change, Cleared

_TIERS = {"CPU": Tier.HOST, "STORAGE": Tier.DISK}
_SWEPT_BLOCKS = 2000


class Prefixes:
    """The index, and for each server the names of what its engine calls by hashes."""

    def __init__(self) -> None:
        self.index = BlockIndex()
        self.block_size = 16
        """Tokens of a block of the servers; the one that the events speak of."""
        self._names: dict[str, dict[bytes | int, bytes]] = {}
        self._epochs: dict[str, int] = {}
        self.num_unnamed = 0
        """Blocks whose parent or keys are not known."""

    def begin(self, server_id: str, epoch: int) -> None:
        """A life of a server begins: what the one before claimed is void."""
        self.index.forget(server_id)
        self._names[server_id] = {}
        self._epochs[server_id] = epoch

    def clear(self, server_id: str) -> None:
        """Events were lost: nothing is claimed until it is told again."""
        self.index.clear(server_id)
        self._names[server_id] = {}

    def apply(self, server_id: str, change: Change) -> None:
        """One event of a server, in its order."""
        if isinstance(change, BlockStored):
            self._stored(server_id, change)
        elif isinstance(change, BlockRemoved):
            self._removed(server_id, change)
        elif isinstance(change, Cleared):
            self.clear(server_id)
        self.index.sweep(_SWEPT_BLOCKS)

    def depths(self, token_ids: Sequence[int], cache_salt: str = "") -> dict[str, int]:
        """Leading blocks of a prompt that each server holds."""
        root = _root(self.block_size, (cache_salt,) if cache_salt else ())
        names = block_hashes(root, token_ids, self.block_size)
        return self.index.match(names).depths if names else {}

    def _stored(self, server_id: str, change: BlockStored) -> None:
        names = self._names.setdefault(server_id, {})
        size = change.block_size
        self.block_size = size
        keys = change.extra_keys or [None] * len(change.block_hashes)
        parent = names.get(change.parent_block_hash) if change.parent_block_hash else None
        if change.parent_block_hash is None and keys:
            parent = _root(size, tuple(map(str, keys[0] or ())))
        new: list[bytes] = []
        for number, engine_hash in enumerate(change.block_hashes):
            tokens = change.token_ids[number * size : (number + 1) * size]
            # A later block has keys of its own only for images and the like: the text is not all.
            has_keys = bool(keys[number]) and (number or change.parent_block_hash is not None)
            if parent is None or len(tokens) != size or (has_keys and not change.lora_name):
                self.num_unnamed += len(change.block_hashes) - number
                break
            parent = extend_chain(parent, tokens)
            names[engine_hash] = parent
            new.append(parent)
        self.index.store(self._place(server_id, change.medium), new)

    def _removed(self, server_id: str, change: BlockRemoved) -> None:
        names = self._names.get(server_id, {})
        gone = [names.pop(one) for one in change.block_hashes if one in names]
        self.index.remove(self._place(server_id, change.medium), gone)

    def _place(self, server_id: str, medium: str | None) -> Place:
        tier = _TIERS.get(medium or "", Tier.MEMORY)
        return Place(server_id, self._epochs.get(server_id, 1), tier, 0)


def _root(block_size: int, keys: tuple[str, ...]) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    for part in ("vllm", str(block_size), *keys):
        data = part.encode()
        state.update(len(data).to_bytes(4, "little") + data)
    return state.digest()
