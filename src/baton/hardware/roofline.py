"""A step's bound from arithmetic and bytes, with named efficiencies: for what nobody measured.

One side counts operations over the achieved rate, the other one bytes over the achieved
bandwidth; a step takes the longer one. Both carry what neither hides: launches, activations
between kernels, the tensor-parallel all-reduces and the hop to the next stage.
"""

from collections.abc import Callable

import msgspec

from baton.errors import ConfigError
from baton.hardware.curves import Grid, Line, StepCurves, StepSide
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.shards import check_parallel
from baton.hardware.system import System

US = 1e6
_KNOTS = tuple(float(n) for n in (
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 16384
))  # fmt: skip
_NARROW = 1.25
"""Bytes of a parameter up to which `Efficiency.narrow` applies."""


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of published peaks that kernels reach.

    Medians over the operator tables that aiconfigurator-core 0.12.0 carries for vLLM on A100,
    H100, H200 and B200; none was fitted to whole steps.
    """

    linear: float = 0.8
    """Of peak FLOP/s: 16-bit products of 1,024 to 16,384 rows, 0.86 to 0.68."""
    narrow: float = 0.65
    """Of both shares again in 8 bits and fewer: 0.53 to 0.73."""
    weights: float = 0.92
    """Of what memory reaches, when few rows read large matrices: 0.73 of its peak."""
    attention: float = 0.65
    """Of the 16-bit peak in prefill attention, beside its fixed time: 0.58 to 0.67."""
    attention_us: float = 12.0
    """One attention kernel, whatever it holds: 9 to 15."""
    elementwise: float = 4.0
    """Other kernels of a layer whose `System.kernel_us` nothing hides: norms, rotation, gate."""
    link: float = 0.6
    """Of a link's bandwidth in an all-reduce: 0.45 to 0.79."""
    link_us: float = 0.5
    """Of `System.link_us` in an all-reduce inside a node: 4 to 8 us."""
    host_us: float = 300.0
    """Between two steps: what vLLM's decode of one sequence on an H200 leaves unexplained."""

    def __post_init__(self) -> None:
        for name in ("linear", "narrow", "weights", "attention", "link"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"efficiency.{name} is {getattr(self, name)}; above 0, up to 1")


class RooflinePredictor:
    """Any model on any system."""

    name = "roofline"

    def __init__(self, efficiency: Efficiency | None = None) -> None:
        self.efficiency = efficiency or Efficiency()

    def curves(self, model: ModelShape, system: System, parallel: Parallel) -> StepCurves:
        """Of one stage. Raises ConfigError where the model cannot be cut so."""
        check_parallel(model, parallel)
        terms = _Terms(model, system, parallel, self.efficiency)
        dtype, _ = system.flops_of(2.0 if model.widens_weights else model.weight_nbytes_per_param)
        return StepCurves(
            sides=(terms.compute(), terms.memory()),
            source=f"roofline of {model.name} on {system.name}, {parallel}, products in {dtype}; "
            "nothing measured on the whole",
            pipeline=parallel.pp,
            is_extrapolated=True,
        )


def expected_experts(num_experts: int, experts_per_token: int, num_rows: float) -> float:
    """Distinct experts that so many rows wake, each choosing evenly: E (1 - (1 - k / E)^n)."""
    return float(num_experts * (1.0 - (1.0 - experts_per_token / num_experts) ** num_rows))


def capped_pairs(num_rows: float, visible: float, most: float) -> float:
    """Query-key pairs of a chunk whose rows see `most` tokens at most."""
    before = min(max(0.0, most - visible), num_rows)
    return before * visible + before * (before + 1) / 2 + (num_rows - before) * most


class _Terms:
    """Rates and amounts of one GPU of the longest stage."""

    def __init__(
        self, model: ModelShape, system: System, parallel: Parallel, efficiency: Efficiency
    ) -> None:
        self.model, self.system, self.parallel = model, system, parallel
        self.efficiency = efficiency
        self.num_layers = -(-model.num_layers // parallel.pp)
        self.layer_share = self.num_layers / model.num_layers
        self.share = self.layer_share / parallel.tp
        self.expert_nbytes = model.expert_nbytes_per_param or model.weight_nbytes_per_param
        self.bytes_per_us = system.memory_bytes_per_s * system.memory_efficiency / US
        self.attention_flops_per_us = system.flops_of(2.0)[1] * efficiency.attention / US
        self.kv_split = 1 if model.latent_dim else min(parallel.tp, model.num_kv_heads)

    def compute(self) -> StepSide:
        """FLOPs over the achieved rate."""
        model, share = self.model, self.share
        active = model.num_moe_layers * model.experts_per_token * model.expert_parameters
        row_us = (
            2.0 * share * model.dense_parameters / self._flops_per_us(model.weight_nbytes_per_param)
        )
        row_us += 2.0 * share * active / self._flops_per_us(self.expert_nbytes)
        row_us += self._window_flops() / self.attention_flops_per_us + self.activation_us()
        head_us = 2.0 * model.head_parameters / self._flops_per_us(2.0) / self.parallel.gpus
        side = StepSide(
            step_us=self.fixed_us(),
            rows=_line(lambda n: n * row_us + self.exchange_us(n)),
            chunk_us=head_us,
            decode_row_us=head_us,
        )
        side = self._with_prefill_attention(side)
        token_us = self._decode_flops() / self.attention_flops_per_us
        return self._with_decode_attention(side, token_us, 0.0)

    def memory(self) -> StepSide:
        """Bytes of weights, activations and K/V over the achieved bandwidth."""
        model = self.model
        dense = model.dense_parameters * model.weight_nbytes_per_param * self.share
        head = model.head_parameters * max(2.0, model.weight_nbytes_per_param)
        fixed = dense / self._weights_per_us(model.weight_nbytes_per_param)
        fixed += head / self.parallel.gpus / self._weights_per_us(2.0)
        expert = model.expert_parameters * self.share * model.num_moe_layers * self.expert_nbytes
        expert_us = expert / self._weights_per_us(self.expert_nbytes)
        kv_us = model.num_attention_layers * self._kv_us(model.row_nbytes)
        row_us = self.activation_us() + kv_us

        def rows_us(n: float) -> float:
            if not model.num_experts:
                return n * row_us + self.exchange_us(n)
            woken = expected_experts(model.num_experts, model.experts_per_token, n)
            return woken * expert_us + n * row_us + self.exchange_us(n)

        layers = model.num_full_layers
        index = model.index_dim if model.sparse_tokens else 0.0
        side = StepSide(
            step_us=fixed + self.fixed_us(),
            rows=_line(rows_us),
            gathered_us=layers * self._kv_us(model.row_nbytes),
            decode_row_us=self._kv_us(model.sequence_nbytes),
        )
        token_us = layers * self._kv_us(model.row_nbytes - index)
        return self._with_decode_attention(side, token_us, layers * self._kv_us(index))

    def fixed_us(self) -> float:
        """Launches and the host, once a step."""
        kernels = self.efficiency.elementwise * self.system.kernel_us
        layers = self.num_layers * (kernels + self.efficiency.attention_us)
        return layers + self.efficiency.host_us / self.parallel.pp

    def exchange_us(self, num_rows: float) -> float:
        """Two all-reduces a layer among the TP group, and one hop between stages."""
        tp, pp, share = self.parallel.tp, self.parallel.pp, self.efficiency
        nbytes = 2.0 * self.model.model_dim * num_rows
        total = 0.0
        if tp > 1:
            link = self.system.link_bytes_per_s(tp) * share.link / US
            ring = 2.0 * (tp - 1) / tp * nbytes / link
            total += 2.0 * self.num_layers * (self.system.link_us * share.link_us + ring)
        if pp > 1:
            link = self.system.link_bytes_per_s(self.parallel.gpus) * share.link / US
            total += self.system.link_us + nbytes / tp / link
        return total

    def activation_us(self) -> float:
        """Between kernels, for one row: residual and norms, projections, feed-forward halves."""
        model = self.model
        per_token = model.experts_per_token + model.num_shared_experts
        ffn = model.num_ffn_layers * model.ffn_dim
        ffn += model.num_moe_layers * model.expert_dim * per_token
        halves = (3 if model.is_gated else 2) * ffn / model.num_layers
        projections = model.query_dim + 2 * model.num_kv_heads * model.head_dim + model.output_dim
        divided = (projections + halves) / self.parallel.tp
        scalars = self.num_layers * (3 * model.model_dim + divided)
        return 2.0 * 2.0 * scalars / self.bytes_per_us

    def _flops_per_us(self, nbytes: float) -> float:
        _, peak = self.system.flops_of(2.0 if self.model.widens_weights else nbytes)
        narrow = self.efficiency.narrow if nbytes <= _NARROW else 1.0
        return peak * self.efficiency.linear * narrow / US

    def _weights_per_us(self, nbytes: float) -> float:
        narrow = self.efficiency.narrow if nbytes <= _NARROW else 1.0
        return self.bytes_per_us * self.efficiency.weights * narrow

    def _kv_us(self, nbytes: float) -> float:
        return nbytes * self.layer_share / self.kv_split / self.bytes_per_us

    def _pair_flops(self) -> float:
        """One query row and one visible token, over this GPU's heads and layers of full sight."""
        model = self.model
        return 2.0 * (model.query_dim + model.output_dim) * model.num_full_layers * self.share

    def _window_flops(self) -> float:
        """Of one row in layers that see a window or keep a state, the window full."""
        model = self.model
        per_pair = 2.0 * (model.query_dim + model.output_dim)
        flops = model.num_window_layers * model.window_tokens * per_pair
        if linear := model.linear:
            state = linear.num_value_heads * linear.value_dim * linear.key_dim
            flops += 6.0 * state * linear.num_layers
        return flops * self.share

    def _decode_flops(self) -> float:
        """As `_pair_flops`; latent attention multiplies with the latent itself when it decodes."""
        model = self.model
        if not model.latent_dim:
            return self._pair_flops()
        per_head = 2.0 * (model.latent_dim + model.rope_dim) + 2.0 * model.latent_dim
        return per_head * model.num_heads * model.num_full_layers * self.share

    def _with_prefill_attention(self, side: StepSide) -> StepSide:
        pair_us = self._pair_flops() / self.attention_flops_per_us
        most = self.model.sparse_tokens
        if not most:
            return msgspec.structs.replace(side, pair_us=pair_us)
        rows = tuple(most * share for share in (1 / 64, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 16.0))
        visible = tuple(most * share for share in (0.0, 0.25, 0.5, 0.75, 1.0, 2.0))
        values = tuple(tuple(pair_us * capped_pairs(n, v, most) for v in visible) for n in rows)
        grid = Grid(x=rows, y=visible, values_us=values)
        return msgspec.structs.replace(side, prefill_attention=grid)

    def _with_decode_attention(self, side: StepSide, token_us: float, index_us: float) -> StepSide:
        """Of each visible token; behind a sparse index up to its tokens, and the index of all."""
        most = self.model.sparse_tokens
        if not most:
            return msgspec.structs.replace(side, decode_token_us=token_us)
        lengths = (0.0, float(most), 2.0 * most)
        values = tuple(
            tuple(batch * (min(length, most) * token_us + length * index_us) for length in lengths)
            for batch in (1.0, 2.0)
        )
        grid = Grid(x=(1.0, 2.0), y=lengths, values_us=values)
        return msgspec.structs.replace(side, decode_grid=grid)


def _line(of_rows: Callable[[float], float]) -> Line:
    """Exact where the curve is straight; experts wake within the first few hundred rows."""
    return Line(knots=_KNOTS, values_us=tuple(of_rows(n) for n in _KNOTS))
