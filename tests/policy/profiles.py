"""A service profile with known coefficients, for tests that need one."""

from typing import Any

from baton.core.layout import KVLayout, ModelIdentity
from baton.policy.phase_cost import BlockShape, Roofline
from baton.policy.service_profile import (
    BatchCoordinates,
    Contention,
    FitError,
    Hardware,
    Kernels,
    ServiceProfile,
    StepGrid,
    StepModel,
    StepOverhead,
    Subject,
    TransferCost,
)

GRID = StepGrid(min_rows=4, query_rows=64, row_knots=(0, 8, 16, 32, 64, 128, 256))
STEPS = StepModel(
    grid=GRID,
    base_us=27_000.0,
    row_us=(1300.0, 1700.0, 2400.0, 2000.0, 2000.0, 1900.0, 1800.0),
    work_us=(0.9, 700.0, 4.0, 3.5, 450.0, 20.0),
    max_rows=1024,
    max_visible=4096,
)


def make_subject(block_size: int = 16, **changed: Any) -> Subject:
    layout = KVLayout(num_layers=30, num_kv_heads=3, head_dim=64, block_size=block_size)
    fields: dict[str, Any] = {
        "identity": ModelIdentity(model="known", checkpoint_hash="c", tokenizer_hash="t"),
        "dtype": "float32",
        "shape": BlockShape(
            layout=layout, model_dim=576, ffn_dim=1536, num_query_heads=9, nbytes_per_weight=4
        ),
        "weight_nbytes": 538_000_000,
        "hardware": Hardware(cpu_model="CPU", num_cores=2, read_bytes_per_us=18_000.0),
        "kernels": Kernels(
            torch_version="2", numba_version="0", deterministic=True, report="deterministic"
        ),
        "batch": BatchCoordinates(
            batch_policy="sarathi_serve", max_batch_tokens=512, max_num_seqs=32
        ),
    }
    return Subject(**{**fields, **changed})


def make_profile(**changed: Any) -> ServiceProfile:
    fields: dict[str, Any] = {
        "subject": make_subject(),
        "measured_at": "2026-01-01T00:00:00Z",
        "steps": STEPS,
        "roofline": Roofline(flops_per_us=118_000.0, nbytes_per_us=18_000.0),
        "transfer": TransferCost(
            bytes_per_us=4000.0, operation_us=40.0, digest_bytes_per_us=8000.0, checksum=True
        ),
        "overhead": StepOverhead(step_us=300.0, sequence_us=50.0),
        "contention": Contention(prefill_beside_decode=1.1, decode_beside_prefill=1.25),
        "errors": {"prefill": FitError(num_points=3, median=0.01, p90=0.02, max=0.03)},
        "num_points": 120,
        "points_digest": "d",
    }
    return ServiceProfile(**{**fields, **changed})
