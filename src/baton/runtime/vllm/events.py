"""vLLM's K/V events as values, and the numbers that show whether one was lost."""

from typing import Any

import msgspec


class BlockStored(msgspec.Struct, frozen=True, tag=True):
    """Blocks became readable; `token_ids` are those of all of them, one after another."""

    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None


class BlockRemoved(msgspec.Struct, frozen=True, tag=True):
    """Blocks are gone from a medium."""

    block_hashes: list[bytes | int]
    medium: str | None = None


class Cleared(msgspec.Struct, frozen=True, tag="AllBlocksCleared"):
    """Nothing is held any more."""


Change = BlockStored | BlockRemoved | Cleared


class _Batch(msgspec.Struct, frozen=True, array_like=True):
    ts: float
    events: list[msgspec.Raw]
    data_parallel_rank: int | None = None


_decode_batch = msgspec.msgpack.Decoder(_Batch).decode
_decode_change = msgspec.msgpack.Decoder(Change).decode


def read_batch(payload: bytes) -> tuple[list[Change], int]:
    """The changes of a batch, and how many events of kinds that are not known.

    Raises msgspec.DecodeError for what is no batch at all.
    """
    changes: list[Change] = []
    unknown = 0
    for raw in _decode_batch(payload).events:
        try:
            changes.append(_decode_change(raw))
        except msgspec.DecodeError:
            unknown += 1
    return changes, unknown


class SequenceCheck:
    """Follows one publisher's numbers: each comes once and in order, or something is missing."""

    def __init__(self) -> None:
        self.expected = -1
        """The next number; -1 before the first."""

    def take(self, number: int) -> str:
        """What a number says: "next", "old", "gap" (some before it are missing) or "restart"."""
        expected = self.expected
        if number == expected or (expected < 0 and number == 0):
            self.expected = number + 1
            return "next"
        if number == 0:
            self.expected = 1
            return "restart"
        if number < expected:
            return "old"
        return "gap"

    def skip_to(self, number: int) -> None:
        """What comes next, after a replay or a clear."""
        self.expected = number
