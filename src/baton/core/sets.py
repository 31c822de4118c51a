"""Compute set, transfer set and the byte ledgers of one handoff (specification 0x01A, 0x06)."""

from collections.abc import Set

import msgspec

from baton.core.layout import KVLayout


class HandoffSets(msgspec.Struct, frozen=True, kw_only=True):
    """Three different sets of prompt blocks; compute and transfer differ in general."""

    compute: frozenset[int]
    """C_P = U \\ R_P: absent from the source, so it must be computed."""
    source: frozenset[int]
    """S_P = R_P | C_P = U: the source's complete state after prefill."""
    transfer: frozenset[int]
    """X = U \\ V_D: absent from what the destination can see, so it must move."""


def handoff_sets(
    num_blocks: int, source_reuse: Set[int], destination_visible: Set[int]
) -> HandoffSets:
    """Split prompt blocks `0 .. num_blocks-1` by what each side already holds exactly."""
    universe = frozenset(range(num_blocks))
    reuse, visible = frozenset(source_reuse), frozenset(destination_visible)
    assert reuse <= universe and visible <= universe
    compute = universe - reuse
    return HandoffSets(compute=compute, source=reuse | compute, transfer=universe - visible)


def logical_nbytes(num_tokens: int, layout: KVLayout) -> int:
    """Payload of `num_tokens` full K/V rows: M = S * L * 2 * H_kv * d_h * b (0x06)."""
    return num_tokens * layout.bytes_per_token


def payload_us(nbytes: int, bandwidth_bytes_per_us: float) -> float:
    """Payload-only service time; setup, validation and queueing come on top (0x06)."""
    return nbytes / bandwidth_bytes_per_us


class TransferLedger(msgspec.Struct, kw_only=True):
    """Logical and physical traffic of one transfer, kept apart; every difference has a name."""

    logical_nbytes: int = 0
    padding_nbytes: int = 0
    """Unused slots of the last block, which moves whole."""
    duplicate_nbytes: int = 0
    """Chunks that arrived again within this transfer."""
    framing_nbytes: int = 0
    """Notifications with ids, lengths and checksums."""
    retried_nbytes: int = 0
    """What earlier, aborted attempts had moved; booked where they were aborted."""

    @property
    def physical_nbytes(self) -> int:
        """Everything that crossed the wire."""
        return (
            self.logical_nbytes
            + self.padding_nbytes
            + self.retried_nbytes
            + self.duplicate_nbytes
            + self.framing_nbytes
        )


def open_ledger(
    token_start: int, num_tokens: int, layout: KVLayout, *, is_padded: bool = True
) -> TransferLedger:
    """Ledger of moving rows `token_start .. num_tokens-1` as whole blocks, or row by row."""
    assert token_start % layout.block_size == 0 and token_start <= num_tokens
    rows = num_tokens - token_start
    blocks = layout.num_blocks(rows)
    logical = logical_nbytes(rows, layout)
    padding = blocks * layout.bytes_per_block - logical if is_padded else 0
    return TransferLedger(logical_nbytes=logical, padding_nbytes=padding)
