"""What a person reads of a profile: constants with units, errors against the bound, budgets."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from baton.policy.phase_cost import PrefillRows
from baton.policy.service_profile import ServiceProfile

ERROR_BOUND = 0.05
"""Median relative error that held-out steps of each phase may have."""
_BUDGET_DECODES = (1, 4, 8, 16)
_BUDGET_CONTEXT = 512


def is_within_bound(profile: ServiceProfile) -> bool:
    """Every phase was judged, and its median error is within the bound."""
    return len(profile.errors) == 3 and all(
        error.median <= ERROR_BOUND for error in profile.errors.values()
    )


def print_profile(profile: ServiceProfile, tbt_ms: Sequence[float], console: Console) -> None:
    """Everything that was fitted, how well, and what it means for a token budget."""
    subject = profile.subject
    hardware = subject.hardware
    console.print(
        f"{subject.identity.model} ({subject.dtype}) on {hardware.cpu_model}, "
        f"{hardware.num_cores} cores, {hardware.num_threads} thread(s) an engine\n"
        f"{subject.kernels.report}; torch {subject.kernels.torch_version}, "
        f"numba {subject.kernels.numba_version}",
        highlight=False,
    )
    console.print(_constants(profile))
    console.print(_errors(profile))
    console.print(_roofline(profile))
    if tbt_ms:
        console.print(_budgets(profile, tbt_ms))


def _constants(profile: ServiceProfile) -> Table:
    table = Table("constant", "value", "unit", title="Fitted and measured constants")
    for name, value, unit in profile.steps.coefficients():
        table.add_row(name, f"{value:,.3f}", unit)
    transfer, overhead, contention = profile.transfer, profile.overhead, profile.contention
    times = "times as long" if contention.is_measured else "not measured: no cores for a neighbour"
    rows = [
        ("transfer copy", transfer.bytes_per_us, "bytes/us, source core"),
        ("transfer read-back", transfer.digest_bytes_per_us, "bytes/us, destination core"),
        ("transfer operation", transfer.operation_us, "us per chunk"),
        ("step overhead", overhead.step_us, "us per served step: node, loop, thread hop"),
        ("sequence overhead", overhead.sequence_us, "us per sequence of a served step"),
        ("prefill beside decode", contention.prefill_beside_decode, times),
        ("decode beside prefill", contention.decode_beside_prefill, times),
        ("memory read", profile.roofline.nbytes_per_us, "bytes/us"),
        ("compute", profile.roofline.flops_per_us, "FLOP/us, slope of many rows"),
    ]
    if profile.delays is not None:
        delays = profile.delays
        rows += [
            ("control message", delays.control_us, "us between router and worker, engines busy"),
            ("gateway in", delays.gateway_in_us, "us from client to router"),
            ("gateway out", delays.gateway_out_us, "us from router to client"),
        ]
    for name, value, unit in rows:
        table.add_row(name, f"{value:,.3f}", unit)
    return table


def _errors(profile: ServiceProfile) -> Table:
    table = Table(
        "phase", "points", "median", "p90", "max", f"median <= {ERROR_BOUND:.0%}",
        title="Relative error on held-out steps",
    )  # fmt: skip
    for phase, error in profile.errors.items():
        verdict = "yes" if error.median <= ERROR_BOUND else "NO"
        figures = [f"{value:.1%}" for value in (error.median, error.p90, error.max)]
        table.add_row(str(phase), str(error.num_points), *figures, verdict)
    return table


def _roofline(profile: ServiceProfile) -> Table:
    """Lower bounds of a few steps, the side that is longer, and the prediction beside it."""
    table = Table(
        "step", "FLOP/byte side", "compute ms", "bytes ms", "predicted ms", title="Roofline"
    )
    context = min(_BUDGET_CONTEXT, profile.steps.max_visible)
    rows = min(256, profile.steps.max_rows)
    chunk = [PrefillRows(num_rows=rows)]
    for name, prefills, visible in (
        (f"prefill {rows}", chunk, []),
        (f"decode 1 at {context}", [], [context]),
        (f"decode 8 at {context}", [], [context] * 8),
        (f"prefill {rows} and decode 8", chunk, [context] * 8),
    ):
        side, compute_us, bytes_us = profile.roofline_side(prefills, visible)
        predicted_us = profile.step_us(prefills, visible)
        times = [f"{value / 1000:.1f}" for value in (compute_us, bytes_us, predicted_us)]
        table.add_row(name, side, *times)
    return table


def _budgets(profile: ServiceProfile, tbt_ms: Sequence[float]) -> Table:
    context = min(_BUDGET_CONTEXT, profile.steps.max_visible)
    table = Table(
        "TBT ms", "decodes", "token budget", "iteration ms", "outcome",
        title=f"Largest iteration under a TBT target, every context {context}",
    )  # fmt: skip
    for target_ms in tbt_ms:
        for count in _BUDGET_DECODES:
            found = profile.token_budget(1000 * target_ms, num_decodes=count, context=context)
            iteration_ms = f"{found.step_us / 1000:.1f}"
            name = found.outcome.replace("_", " ")
            table.add_row(f"{target_ms:g}", str(count), str(found.num_tokens), iteration_ms, name)
    return table
