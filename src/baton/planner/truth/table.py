"""Errors of all cases as one table, the peer's beside ours."""

from baton.planner.truth.case import Case
from baton.planner.truth.errors import Error
from baton.planner.truth.peer import PEER, peer_errors
from baton.planner.truth.predict import Prediction


def describe(case: Case, found: Prediction, errors: list[Error]) -> str:
    """One case: what was simulated, then a line for each figure."""
    group = found.deployment.groups[0]
    lines = [
        f"{case.name}: {len(case.arrival_us)} requests, {case.engine.cut}, "
        f"{group.kv_tokens} tokens of K/V a rank, {found.num_steps} steps "
        f"({found.num_extrapolated} beyond the timings), {found.num_preempted} preemptions, "
        f"simulated in {found.wall_s:.3f} s",
        f"  {'':14}{'predicted':>12}{'measured':>12}{'error':>9}{PEER:>15}",
    ]
    peers = peer_errors(case.name)
    for place, error in enumerate(errors):
        measured = "" if error.measured_ms is None else f"{error.measured_ms:.1f} ms"
        percent = "" if error.percent is None else f"{error.percent:+.1f} %"
        peer = "" if peers is None else f"{peers[place]:+.1f} %"
        lines.append(
            f"  {error.name:14}{error.predicted_ms:>9.1f} ms{measured:>12}{percent:>9}{peer:>15}"
        )
    return "\n".join(lines)
