"""Step curves as the costs of a replay, so that the production nodes run on the same machine."""

from collections.abc import Sequence

import numpy as np

from baton.core.layout import KVLayout, ModelIdentity
from baton.errors import ConfigError
from baton.hardware.curves import StepCurves
from baton.hardware.evaluate import step_us
from baton.policy.phase_cost import BlockShape, PrefillRows
from baton.policy.service_profile import (
    BatchCoordinates,
    Contention,
    Hardware,
    Kernels,
    StepOverhead,
    Subject,
    TransferCost,
)

_NBYTES_PER_SCALAR = 2


class CurvesCosts:
    """What a replay asks of a machine, answered by curves of one stage and a link's rate."""

    def __init__(
        self,
        curves: StepCurves,
        *,
        token_nbytes: int,
        num_layers: int = 1,
        bytes_per_us: float,
        operation_us: float = 0.0,
        step_overhead_us: float = 0.0,
        sequence_overhead_us: float = 0.0,
    ) -> None:
        if curves.pipeline != 1:
            raise ConfigError(
                f"curves: pipeline {curves.pipeline}; the production nodes run one step at a time"
            )
        width, rest = divmod(token_nbytes, 2 * _NBYTES_PER_SCALAR * num_layers)
        if rest or not width:
            raise ConfigError(
                f"token_nbytes {token_nbytes} is not K and V of {num_layers} layers, "
                f"{_NBYTES_PER_SCALAR} bytes a number"
            )
        self._packed = curves.packed()
        self._rows, self._visible = np.zeros(64), np.zeros(64)
        self.subject = _subject(curves.source, num_layers, width)
        self.transfer = TransferCost(
            bytes_per_us=bytes_per_us,
            operation_us=operation_us,
            digest_bytes_per_us=0.0,
            checksum=False,
        )
        self.overhead = StepOverhead(step_us=step_overhead_us, sequence_us=sequence_overhead_us)
        self.contention = Contention(
            prefill_beside_decode=1.0, decode_beside_prefill=1.0, is_measured=False
        )

    def step_us(
        self, prefills: Sequence[PrefillRows], visible_lengths: Sequence[int], /
    ) -> float:
        """The curves' time of one step."""
        if len(prefills) > len(self._rows):
            self._rows, self._visible = np.zeros(2 * len(prefills)), np.zeros(2 * len(prefills))
        for number, chunk in enumerate(prefills):
            self._rows[number], self._visible[number] = chunk.num_rows, chunk.num_visible
        num_seen = float(sum(visible_lengths))
        return float(
            step_us(
                self._packed,
                self._rows,
                self._visible,
                len(prefills),
                len(visible_lengths),
                num_seen,
            )
        )


def _subject(name: str, num_layers: int, width: int) -> Subject:
    layout = KVLayout(
        num_layers=num_layers,
        num_kv_heads=1,
        head_dim=width,
        block_size=1,
        dtype_k="bfloat16",
        dtype_v="bfloat16",
    )
    return Subject(
        identity=ModelIdentity(model=name, checkpoint_hash="none", tokenizer_hash="none"),
        dtype="bfloat16",
        shape=BlockShape(layout=layout, model_dim=1, ffn_dim=1, num_query_heads=1),
        weight_nbytes=0,
        hardware=Hardware(cpu_model=name, num_cores=1, read_bytes_per_us=0.0),
        kernels=Kernels(torch_version="", numba_version="", deterministic=True, report="curves"),
        batch=BatchCoordinates(batch_policy="", max_batch_tokens=0, max_num_seqs=0),
    )
