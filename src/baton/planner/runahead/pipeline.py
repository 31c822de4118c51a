"""Time to the first token of a prompt over processes: handed on layer by layer, or all-gathered.

A layer projects its rows, waits for the K/V before them, hands both on, attends, and does the
rest. Receiving overlaps projecting, sending overlaps attending (specification 0x0CC); each link
carries one layer at a time.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from baton.planner.runahead.search import Rows

Times = NDArray[np.float64]
ATTENTION_PASSES = 4
"""Unfused: scores are written, masked (read, written), normalised (read, written) and read."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """From each process to the next."""

    bytes_per_us: float
    latency_us: float = 10.0


class LayerCosts(msgspec.Struct, frozen=True, kw_only=True):
    """One layer of one process, in microseconds."""

    num_layers: int
    row_nbytes: int
    """K and V of one token of one layer."""
    project_row_us: float
    """Q, K and V of one row."""
    rest_row_us: float
    """Everything linear after the attention."""
    pair_us: float
    """One query-key pair over all heads."""
    least_project_us: float = 0.0
    """Reading the weights takes that long however few rows there are."""
    least_rest_us: float = 0.0

    def project_us(self, rows: Times) -> Times:
        """Before the K/V of earlier rows is needed."""
        longer: Times = np.maximum(rows * self.project_row_us, self.least_project_us)
        return longer

    def rest_us(self, rows: Times) -> Times:
        """After the attention."""
        longer: Times = np.maximum(rows * self.rest_row_us, self.least_rest_us)
        return longer


def transformer_costs(
    *,
    num_layers: int,
    model_dim: int,
    ffn_dim: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    flops_per_us: float,
    nbytes_per_us: float,
    fused: bool,
) -> LayerCosts:
    """A gated 16-bit transformer block on a device of these achieved rates.

    Without a fused kernel the scores go through memory, four passes of 2 bytes beside the two
    products; with one the pairs cost their arithmetic alone.
    """
    query, kv = num_heads * head_dim, num_kv_heads * head_dim
    project = model_dim * (query + 2 * kv)
    rest = query * model_dim + 3 * model_dim * ffn_dim
    product_us = max(2 * query / flops_per_us, 2 * num_heads / nbytes_per_us)
    pair_us = 2 * product_us
    if not fused:
        pair_us += ATTENTION_PASSES * 2 * num_heads / nbytes_per_us
    return LayerCosts(
        num_layers=num_layers,
        row_nbytes=2 * kv * 2,
        project_row_us=2 * project / flops_per_us,
        rest_row_us=2 * rest / flops_per_us,
        pair_us=pair_us,
        least_project_us=2 * project / nbytes_per_us,
        least_rest_us=2 * rest / nbytes_per_us,
    )


def runahead_us(partitions: Rows, costs: LayerCosts, link: Link) -> Times:
    """When the last process has its last row, for each partition (a line)."""
    rows = partitions.astype(np.float64)
    num_processes = rows.shape[1]
    ends = np.cumsum(rows, axis=1)
    project, rest = costs.project_us(rows), costs.rest_us(rows)
    attend = costs.pair_us * rows * ends
    move = ends * (costs.row_nbytes / link.bytes_per_us) + link.latency_us
    done = np.zeros_like(rows)
    """Of each process, its layer so far."""
    free = np.zeros_like(rows)
    """When the link behind each process has delivered the layer before."""
    for _ in range(costs.num_layers):
        arrived = np.zeros(len(rows))
        for p in range(num_processes):
            joined = np.maximum(done[:, p] + project[:, p], arrived)
            done[:, p] = joined + attend[:, p] + rest[:, p]
            arrived = np.maximum(joined, free[:, p]) + move[:, p]
            free[:, p] = arrived
    return done[:, -1]


def gathered_us(num_rows: int, num_processes: int, costs: LayerCosts, link: Link) -> float:
    """Equal shares, and every layer's K/V gathered by a ring before any of its attention."""
    share = np.array([-(-num_rows // num_processes)], np.float64)
    hops = num_processes - 1
    gather = hops * (share * costs.row_nbytes / link.bytes_per_us + link.latency_us)
    attend = costs.pair_us * share * num_rows
    layer = costs.project_us(share) + (gather if hops else 0.0) + attend + costs.rest_us(share)
    return float(costs.num_layers * layer[0])
