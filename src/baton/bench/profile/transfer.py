"""What a chunk costs over the real data plane, between two processes on two cores."""

import numpy as np

from baton.bench.payload import PayloadRow, measure_payload
from baton.config import TransferConfig
from baton.policy.service_profile import TransferCost

MIB = 1 << 20
_SIZES = (1 * MIB, 4 * MIB)
"""Handoffs of one chunk each, so that nothing of one overlaps another."""


def measure_transfer(transfer: TransferConfig, num_rounds: int) -> TransferCost:
    """Rates and the fixed part of one copy, with checksums as the configuration has them."""
    rows = measure_payload(_SIZES, checksum=transfer.checksum, num_rounds=num_rounds)
    return transfer_cost(rows, checksum=transfer.checksum)


def transfer_cost(rows: list[PayloadRow], *, checksum: bool) -> TransferCost:
    """Split one-chunk handoffs into a fixed part, the copy and the read-back.

    The source core's own copy (with its hash) is timed apart; what a handoff takes beyond it, as a
    line over its size, is the fixed part plus the destination's read-back.
    """
    bytes_per_us = float(np.median([1e3 * row.ceiling * row.memcpy_gbps for row in rows]))
    beyond_us = [row.latency_us - row.nbytes / bytes_per_us for row in rows]
    slope, fixed_us = np.polyfit([float(row.nbytes) for row in rows], beyond_us, 1)
    reads_back = checksum and slope > 0
    return TransferCost(
        bytes_per_us=bytes_per_us,
        operation_us=max(0.0, float(fixed_us)),
        digest_bytes_per_us=1 / float(slope) if reads_back else 0.0,
        checksum=checksum,
    )
