"""Step curves as a replay asks for costs, so that the production nodes run on any predictor."""

from collections.abc import Sequence

from baton.core.layout import KVLayout, ModelIdentity
from baton.hardware.curves import StepCurves, chunk_arrays
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


class CurvesCosts:
    """One worker's curves; workers do not slow each other down."""

    def __init__(
        self,
        curves: StepCurves,
        layout: KVLayout,
        *,
        name: str,
        transfer: TransferCost,
        overhead: StepOverhead | None = None,
        weight_nbytes: int = 0,
        decode: "CurvesCosts | None" = None,
    ) -> None:
        self.curves = curves
        self.decode = decode
        """Of decode workers, where they are cut otherwise."""
        self.transfer = transfer
        self.overhead = overhead or StepOverhead(step_us=0.0, sequence_us=0.0)
        self.contention = Contention(
            prefill_beside_decode=1.0, decode_beside_prefill=1.0, is_measured=False
        )
        self.subject = _subject(name, layout, weight_nbytes)
        self._packed = curves.packed()
        self._stages = curves.pipeline

    def step_us(self, prefills: Sequence[PrefillRows], visible_lengths: Sequence[int]) -> float:
        """From a step's start to its end, over every stage; a step without rows takes no time."""
        rows, visible, num_chunks = chunk_arrays(prefills)
        num_seen = float(sum(visible_lengths))
        one_us = step_us(self._packed, rows, visible, num_chunks, len(visible_lengths), num_seen)
        return self._stages * float(one_us)


def _subject(name: str, layout: KVLayout, weight_nbytes: int) -> Subject:
    """What the nodes must know of a model; the shape's other widths cost nothing here."""
    return Subject(
        identity=ModelIdentity(model=name, checkpoint_hash="none", tokenizer_hash="none"),
        dtype=layout.dtype_k,
        shape=BlockShape(
            layout=layout, model_dim=1, ffn_dim=1, num_query_heads=layout.num_kv_heads
        ),
        weight_nbytes=weight_nbytes,
        hardware=Hardware(cpu_model=name, num_cores=1, read_bytes_per_us=0.0),
        kernels=Kernels(torch_version="", numba_version="", deterministic=True, report="curves"),
        batch=BatchCoordinates(batch_policy="", max_batch_tokens=0, max_num_seqs=0),
    )
