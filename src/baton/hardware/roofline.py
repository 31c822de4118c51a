"""A step's bound from arithmetic and bytes, with named efficiencies: for what nobody measured.

One side counts operations over the achieved rate, the other one bytes over the achieved
bandwidth; a step takes the longer one. Both sides carry what neither hides: launches of kernels,
the tensor-parallel all-reduces and the hop to the next stage.
"""

from collections.abc import Callable

import msgspec

from baton.errors import ConfigError
from baton.hardware.curves import Line, StepCurves, StepSide
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.shards import check_parallel
from baton.hardware.system import System

US = 1e6
_KNOTS = tuple(float(n) for n in (
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 16384
))  # fmt: skip


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the published peaks that serving reaches."""

    linear: float = 0.65
    """Of peak FLOP/s in large matrix products."""
    attention: float = 0.45
    """Of the 16-bit peak in prefill attention."""
    link: float = 0.75
    """Of a link's bandwidth in an all-reduce."""
    kernels_per_layer: float = 10.0
    """Launches that follow each other, each at least the system's `kernel_us` with its neighbour
    half hidden."""
    host_us: float = 500.0
    """Scheduling and sampling between two steps."""

    def __post_init__(self) -> None:
        for name in ("linear", "attention", "link"):
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
        dtype, _ = system.flops_of(model.weight_nbytes_per_param)
        return StepCurves(
            sides=(terms.compute(), terms.memory()),
            source=f"roofline of {model.name} on {system.name}, {parallel}, products in {dtype}: "
            f"{self.efficiency.linear:g} of peak, "
            f"{system.memory_efficiency:g} of bandwidth; not measured",
            pipeline=parallel.pp,
            is_extrapolated=True,
        )


def expected_experts(num_experts: int, experts_per_token: int, num_rows: float) -> float:
    """Distinct experts that so many rows wake, each choosing evenly: E (1 - (1 - k / E)^n)."""
    return float(num_experts * (1.0 - (1.0 - experts_per_token / num_experts) ** num_rows))


class _Terms:
    """Rates and amounts of one GPU of the longest stage."""

    def __init__(
        self, model: ModelShape, system: System, parallel: Parallel, efficiency: Efficiency
    ) -> None:
        self.model, self.system, self.parallel = model, system, parallel
        self.efficiency = efficiency
        layers = -(-model.num_layers // parallel.pp)
        self.num_layers = layers
        self.share = layers / model.num_layers / parallel.tp
        peak = system.flops_of(model.weight_nbytes_per_param)[1] * efficiency.linear
        experts = model.expert_nbytes_per_param or model.weight_nbytes_per_param
        self.linear_flops_per_us = peak / US
        self.expert_flops_per_us = system.flops_of(experts)[1] * efficiency.linear / US
        self.attention_flops_per_us = system.flops_of(2.0)[1] * efficiency.attention / US
        self.bytes_per_us = system.memory_bytes_per_s * system.memory_efficiency / US
        self.kv_split = 1 if model.latent_dim else min(parallel.tp, model.num_kv_heads)

    def compute(self) -> StepSide:
        """FLOPs over the achieved rate."""
        model, share = self.model, self.share
        dense_us = 2.0 * model.dense_parameters * share / self.linear_flops_per_us
        active = model.num_moe_layers * model.experts_per_token * model.expert_parameters
        expert_us = 2.0 * active * share / self.expert_flops_per_us
        rows = _line(lambda n: n * (dense_us + expert_us) + self.exchange_us(n))
        head_us = 2.0 * model.head_parameters / self.parallel.tp / self.linear_flops_per_us
        head_us /= self.parallel.pp
        pair_us = self.pair_flops() / self.attention_flops_per_us
        return StepSide(
            step_us=self.fixed_us(),
            rows=rows,
            chunk_us=head_us,
            pair_us=pair_us,
            decode_row_us=head_us,
            decode_token_us=self.decode_pair_flops() / self.attention_flops_per_us,
        )

    def memory(self) -> StepSide:
        """Bytes of weights, activations and K/V over the achieved bandwidth."""
        model, bandwidth = self.model, self.bytes_per_us
        head = model.head_parameters * max(2.0, model.weight_nbytes_per_param) / self.parallel.tp
        dense = model.dense_parameters * model.weight_nbytes_per_param * self.share
        fixed = (dense + head / self.parallel.pp) / bandwidth + self.fixed_us()
        expert = model.expert_parameters * self.share * model.num_moe_layers
        expert *= model.expert_nbytes_per_param or model.weight_nbytes_per_param
        kv_row = model.num_attention_layers * model.row_nbytes
        kv_row *= self.num_layers / model.num_layers / self.kv_split
        row = self.activation_nbytes() + kv_row

        def rows_us(n: float) -> float:
            woken = (
                expected_experts(model.num_experts, model.experts_per_token, n)
                if model.num_experts
                else 0.0
            )
            return (woken * expert + n * row) / bandwidth + self.exchange_us(n)

        token = model.token_nbytes * self.num_layers / model.num_layers / self.kv_split
        window = model.sequence_nbytes * self.num_layers / model.num_layers / self.kv_split
        return StepSide(
            step_us=fixed,
            rows=_line(rows_us),
            gathered_us=token / bandwidth,
            decode_row_us=window / bandwidth,
            decode_token_us=token / bandwidth,
        )

    def fixed_us(self) -> float:
        """Launches and the host, once a step."""
        launches = self.efficiency.kernels_per_layer * self.num_layers * self.system.kernel_us
        return 0.5 * launches + self.efficiency.host_us / self.parallel.pp

    def exchange_us(self, num_rows: float) -> float:
        """Two all-reduces a layer among the TP group, and one hop between stages."""
        model, tp, pp = self.model, self.parallel.tp, self.parallel.pp
        nbytes = 2.0 * model.model_dim * num_rows
        total = 0.0
        if tp > 1:
            link = self.system.link_bytes_per_s(tp) * self.efficiency.link / US
            ring = 2.0 * (tp - 1) / tp * nbytes / link
            total += 2.0 * self.num_layers * (self.system.link_us * 0.5 + ring)
        if pp > 1:
            link = self.system.link_bytes_per_s(self.parallel.gpus) * self.efficiency.link / US
            total += self.system.link_us + nbytes / tp / link
        return total

    def activation_nbytes(self) -> float:
        """Read and written between kernels for one row: residual and norms, projections, halves."""
        model = self.model
        per_token = model.experts_per_token + model.num_shared_experts
        ffn = model.num_ffn_layers * model.ffn_dim
        ffn += model.num_moe_layers * model.expert_dim * per_token
        halves = (3 if model.is_gated else 2) * ffn / model.num_layers
        projections = model.query_dim + 2 * model.num_kv_heads * model.head_dim + model.output_dim
        divided = (projections + halves) / self.parallel.tp
        return 2.0 * 2.0 * self.num_layers * (3 * model.model_dim + divided)

    def pair_flops(self) -> float:
        """One query row and one visible token, over this GPU's heads and layers of full sight."""
        model = self.model
        per_layer = 2.0 * (model.query_dim + model.output_dim)
        return per_layer * model.num_full_layers * self.share

    def decode_pair_flops(self) -> float:
        """The same for a decode row; latent attention multiplies with the latent itself then."""
        model = self.model
        if not model.latent_dim:
            return self.pair_flops()
        per_head = 2.0 * (model.latent_dim + model.rope_dim) + 2.0 * model.latent_dim
        return per_head * model.num_heads * model.num_full_layers * self.share


def _line(of_rows: Callable[[float], float]) -> Line:
    """Exact where the curve is straight; experts wake within the first few hundred rows."""
    return Line(knots=_KNOTS, values_us=tuple(of_rows(n) for n in _KNOTS))
