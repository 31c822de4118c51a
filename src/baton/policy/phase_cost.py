"""Work of prefill, decode and mixed steps from rows and causal pairs, and their lower bounds.

Implements specification 0x02A and 0x02B for a stack of transformer blocks. Normalization,
elementwise operations, embeddings, sampling and the vocabulary head stay outside this ledger.
"""

from collections.abc import Sequence

import msgspec

from baton.core.layout import KVLayout
from baton.errors import ConfigError


class BlockShape(msgspec.Struct, frozen=True, kw_only=True):
    """Dimensions of one transformer block; layers, K/V heads and head width come from `layout`.

    MHA, GQA and MQA differ only in `layout.num_kv_heads`. A latent layout stores one compressed
    row of `latent_dim` scalars per token and layer instead of separate K and V heads.
    """

    layout: KVLayout
    model_dim: int
    ffn_dim: int
    num_query_heads: int
    nbytes_per_weight: int = 2

    def __post_init__(self) -> None:
        for name in ("model_dim", "ffn_dim", "num_query_heads", "nbytes_per_weight"):
            if getattr(self, name) < 1:
                raise ConfigError(f"shape.{name} is {getattr(self, name)}; it must be at least 1")
        heads = self.layout.num_kv_heads
        if not self.layout.latent_dim and self.num_query_heads % heads:
            raise ConfigError(
                f"shape.num_query_heads is {self.num_query_heads}; "
                f"it must be a multiple of the {heads} K/V heads"
            )


class PrefillRows(msgspec.Struct, frozen=True, kw_only=True):
    """`num_rows` new prompt rows after `num_visible` rows that are already in the cache."""

    num_rows: int
    num_visible: int = 0


class PhaseWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work vector of one step: W = (F, B_weights, B_KV,read, B_KV,write, A, N_new) (0x02B)."""

    flops: int
    weight_nbytes: int
    kv_read_nbytes: int
    kv_write_nbytes: int
    causal_pairs: int
    num_rows: int

    @property
    def nbytes(self) -> int:
        """State bytes: weights, K/V read and K/V written."""
        return self.weight_nbytes + self.kv_read_nbytes + self.kv_write_nbytes

    @property
    def flops_per_byte(self) -> float:
        """Arithmetic intensity over state bytes, in FLOP/byte."""
        return self.flops / self.nbytes


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """Peak rates of one worker, per microsecond: 1e12 FLOP/s is 1e6 here, 1e11 B/s is 1e5."""

    flops_per_us: float
    nbytes_per_us: float

    @property
    def ridge_flops_per_byte(self) -> float:
        """Intensity above which compute is the longer side."""
        return self.flops_per_us / self.nbytes_per_us


def layer_parameters(shape: BlockShape) -> int:
    """Scalars of one layer: P = d(H_q d_h) + 2d(H_kv d_h) + (H_q d_h)d + 3 d d_ff (0x02A).

    A latent layout replaces the K/V term by one down-projection, d * c, and the two
    up-projections, 2 * c * H_q d_h, with the query projection left uncompressed.
    """
    layout, width = shape.layout, shape.num_query_heads * shape.layout.head_dim
    if layout.latent_dim:
        key_value = layout.latent_dim * (shape.model_dim + 2 * width)
    else:
        key_value = 2 * shape.model_dim * layout.num_kv_heads * layout.head_dim
    return 2 * shape.model_dim * width + key_value + 3 * shape.model_dim * shape.ffn_dim


def weight_nbytes(shape: BlockShape) -> int:
    """Bytes of all block weights, read once per step whatever the step holds."""
    return shape.layout.num_layers * layer_parameters(shape) * shape.nbytes_per_weight


def prefill_pairs(num_rows: int, num_visible: int) -> int:
    """Query-key pairs per head: A_P = N T_0 + N(N+1)/2 (0x02A)."""
    assert num_rows >= 0 and num_visible >= 0
    return num_rows * num_visible + num_rows * (num_rows + 1) // 2


def decode_pairs(visible_lengths: Sequence[int]) -> int:
    """A_D = sum of visible lengths, each counted after its current row is appended (0x02A)."""
    assert all(length >= 1 for length in visible_lengths)
    return sum(visible_lengths)


def linear_flops(shape: BlockShape, num_rows: int) -> int:
    """F_linear = 2 L N P_layer, one multiply-add being two FLOPs (0x02A)."""
    return 2 * shape.layout.num_layers * num_rows * layer_parameters(shape)


def attention_flops(shape: BlockShape, causal_pairs: int) -> int:
    """F_attn = 4 L H_q d_h A: QK^T and probabilities times V (0x02A)."""
    layout = shape.layout
    return 4 * layout.num_layers * shape.num_query_heads * layout.head_dim * causal_pairs


def naive_score_scalars(shape: BlockShape, causal_pairs: int) -> int:
    """Scalars of a materialized score tensor of one layer, H_q A; tiled kernels avoid it."""
    return shape.num_query_heads * causal_pairs


def step_work(
    shape: BlockShape,
    prefills: Sequence[PrefillRows] = (),
    visible_lengths: Sequence[int] = (),
) -> PhaseWork:
    """Work of one step of prefill rows and decode rows; the weights are read once (0x02B).

    K/V reads count each sequence's visible state once, a lower bound and not kernel traffic; K/V
    writes count every new row. A step without rows does no work at all.
    """
    num_rows = sum(item.num_rows for item in prefills) + len(visible_lengths)
    pairs = sum(prefill_pairs(item.num_rows, item.num_visible) for item in prefills)
    pairs += decode_pairs(visible_lengths)
    visible = sum(item.num_visible + item.num_rows for item in prefills if item.num_rows)
    visible += sum(visible_lengths)
    per_token = shape.layout.bytes_per_token
    return PhaseWork(
        flops=linear_flops(shape, num_rows) + attention_flops(shape, pairs),
        weight_nbytes=weight_nbytes(shape) if num_rows else 0,
        kv_read_nbytes=visible * per_token,
        kv_write_nbytes=num_rows * per_token,
        causal_pairs=pairs,
        num_rows=num_rows,
    )


def compute_us(work: PhaseWork, roofline: Roofline) -> float:
    """F / C, in microseconds."""
    return work.flops / roofline.flops_per_us


def bytes_us(work: PhaseWork, roofline: Roofline) -> float:
    """(B_weights + B_KV,read + B_KV,write) / R, in microseconds."""
    return work.nbytes / roofline.nbytes_per_us


def bound_us(work: PhaseWork, roofline: Roofline) -> float:
    """Lower bound of the service time: the longer of the compute and the byte side (0x02B)."""
    return max(compute_us(work, roofline), bytes_us(work, roofline))


def mixed_slot_dilation(
    shape: BlockShape,
    prefills: Sequence[PrefillRows],
    visible_lengths: Sequence[int],
    roofline: Roofline,
) -> float:
    """How much longer decode rows wait when prefill rows share their slot (0x02B).

    The ratio of the mixed step's bound to the decode-only bound; a bound on cadence, not a latency
    prediction. Decode rows cannot retire before the shared slot completes, so it is at least 1.
    """
    assert visible_lengths, "dilation is the view of decode rows"
    mixed = bound_us(step_work(shape, prefills, visible_lengths), roofline)
    return mixed / bound_us(step_work(shape, (), visible_lengths), roofline)
