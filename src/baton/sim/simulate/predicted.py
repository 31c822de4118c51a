"""A model on a system as something to simulate: any predictor's curves, memory and link."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from baton.core.layout import KVLayout
from baton.errors import ConfigError
from baton.hardware.instance import Instance, instance_of
from baton.hardware.lookup import find_both
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.predictor import choose_predictor
from baton.policy.service_profile import StepOverhead, TransferCost
from baton.sim.fast.costs import CurvesCosts

US_PER_S = 1e6
GIGA = 1e9
MAX_GROUPS = 10
"""Layers that are reported and moved apart; more only make more events."""
_NBYTES = 2


class PredictedCosts(NamedTuple):
    """What a replay asks for, and what is said of it."""

    costs: CurvesCosts
    name: str
    """For reports."""
    kv_tokens: int
    """That one worker holds."""
    decode_kv_tokens: int
    """That a decode worker holds."""
    warning: str
    """Where nothing was measured."""


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """What `--model` and `--system` name, and how each worker is cut."""

    model: str
    system: str
    parallel: Parallel = Parallel()
    decode_parallel: Parallel | None = None
    """Of decode workers; None: as the others."""
    predictor: str | None = None
    data: Path | None = None
    utilization: float = 0.9


def predicted_costs(asked: Predicted, bandwidth: float | None) -> PredictedCosts:
    """Costs, their name, and the tokens of K/V that one worker holds.

    `bandwidth` in GB/s of one worker to the others; by default what its GPUs have between nodes.
    """
    model, system = find_both(asked.model, asked.system, None)
    choice = choose_predictor(model, system, data=asked.data, name=asked.predictor)
    if bandwidth is not None and not 0 < bandwidth < float("inf"):
        raise ConfigError(f"--bandwidth {bandwidth:g}: GB/s, a finite number above 0")

    def cut(parallel: Parallel) -> tuple[Instance, float, str]:
        instance = instance_of(
            choice.predictor, model, system, parallel, utilization=asked.utilization
        )
        link = bandwidth * GIGA if bandwidth else system.inter_bytes_per_s * parallel.gpus
        return instance, link, f"TP{parallel.tp} PP{parallel.pp}, link {link / GIGA:g} GB/s"

    instance, link, text = cut(asked.parallel)
    sources, decode, held = [instance.curves.source], None, instance.kv_tokens
    if asked.decode_parallel is not None:
        other, other_link, other_text = cut(asked.decode_parallel)
        decode, held = _costs(model, other, other_link), other.kv_tokens
        text += f", decode {other_text}"
        sources += [other.curves.source]
    return PredictedCosts(
        costs=_costs(model, instance, link, decode),
        name=f"{model.name} on {system.name}, {text}; {'; '.join(dict.fromkeys(sources))}",
        kv_tokens=instance.kv_tokens,
        decode_kv_tokens=held,
        warning=choice.warning,
    )


def _costs(
    model: ModelShape,
    instance: Instance,
    link_bytes_per_s: float,
    decode: CurvesCosts | None = None,
) -> CurvesCosts:
    return CurvesCosts(
        instance.curves,
        grouped_layout(model),
        name=model.name,
        transfer=TransferCost(
            bytes_per_us=link_bytes_per_s / US_PER_S,
            operation_us=0.0,
            digest_bytes_per_us=0.0,
            checksum=False,
        ),
        overhead=StepOverhead(
            step_us=instance.step_overhead_us, sequence_us=instance.sequence_overhead_us
        ),
        weight_nbytes=int(model.weight_nbytes),
        decode=decode,
    )


def grouped_layout(model: ModelShape) -> KVLayout:
    """The model's bytes of K/V in no more than `MAX_GROUPS` equal layers."""
    token_nbytes = int(model.token_nbytes)
    for num_groups in range(min(MAX_GROUPS, model.num_layers), 0, -1):
        if token_nbytes % (2 * _NBYTES * num_groups) == 0:
            return KVLayout(
                num_layers=num_groups,
                num_kv_heads=1,
                head_dim=token_nbytes // (2 * _NBYTES * num_groups),
                block_size=1,
                dtype_k="bfloat16",
                dtype_v="bfloat16",
            )
    raise ConfigError(f"{model.name}: {token_nbytes} bytes of K/V a token make no layout")
