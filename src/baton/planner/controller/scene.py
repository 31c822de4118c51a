"""What is controlled: one kind of prefill and of decode worker, requests, and the budget."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from baton.core.ids import Role, Schedule
from baton.hardware.curves import Line, StepCurves, StepSide
from baton.policy.phase_cost import PrefillRows
from baton.policy.replan_signals import WorkerRates
from baton.sim.fast.deployment import Deployment, Handoff, Topology, WorkerGroup

_POOL_TOKENS = 16_384 * 512
DYNAMO_STEPS = StepCurves(
    sides=(
        StepSide(
            prefill_us=16_501.42,
            prefill_rows=Line(knots=(0.0, 8192.0), values_us=(0.0, 8192 * 15.18344)),
            pair_us=2 * 4.209989e-4,
            decode_us=5_740.0,
            decode_token_us=54_010.0 / _POOL_TOKENS,
        ),
    ),
    source="the engine that Dynamo's replay has built in: 16.5 + 0.01518 n + 4.21e-7 n^2 ms for a "
    "prompt of n tokens, 5.74 + 54.01 p ms for a decode step with a share p of the pool in use",
)
LENGTH_KNOTS = 160
"""Prompt lengths at which work is computed exactly; between them it is interpolated."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Equal workers of each phase on one topology."""

    prefill: WorkerGroup
    decode: WorkerGroup
    handoff: Handoff
    topology: Topology
    route: str = "shortest_queue"

    def deployment(self, num_prefill: int, num_decode: int) -> Deployment:
        """So many of each."""
        return Deployment(
            groups=(
                msgspec.structs.replace(self.prefill, num_workers=num_prefill),
                msgspec.structs.replace(self.decode, num_workers=num_decode),
            ),
            handoff=self.handoff,
            topology=self.topology,
            route=self.route,
        )

    def prompt_us(self, lengths: NDArray[np.int64]) -> NDArray[np.float64]:
        """Work of a prompt on an idle worker, step by step as it is chunked."""
        most = int(lengths.max())
        knots = np.unique(np.geomspace(1, most, LENGTH_KNOTS).astype(np.int64))
        times = [self._prompt_us(int(num)) for num in knots]
        found: NDArray[np.float64] = np.interp(lengths, knots, times)
        return found

    def _prompt_us(self, num_rows: int) -> float:
        step, seen, total = self.prefill.max_batch_tokens, 0, 0.0
        while seen < num_rows:
            rows = min(step, num_rows - seen)
            chunk = PrefillRows(num_rows=rows, num_visible=seen)
            total += self.prefill.curves.step_us([chunk], []) * self.prefill.curves.pipeline
            seen += rows
        return total

    def rates(self, mean_context: float) -> WorkerRates:
        """Decode as a line through steps of one and of many sequences of the mean context."""
        context, many = max(1, round(mean_context)), 16
        one_us, many_us = (
            self.decode.curves.step_us([], [context] * num) * self.decode.curves.pipeline
            for num in (1, many)
        )
        sequence_us = max(0.0, (many_us - one_us) / (many - 1)) + self.decode.sequence_overhead_us
        nbytes = mean_context * self.handoff.token_nbytes
        return WorkerRates(
            decode_step_us=one_us - sequence_us + self.decode.step_overhead_us,
            decode_sequence_us=sequence_us,
            decode_tokens=self.decode.kv_tokens,
            decode_max_requests=self.decode.max_num_seqs,
            handoff_us=nbytes / self.topology.egress_bytes_per_us + self.topology.latency_us,
            prefill_gpus=self.prefill.gpus,
            decode_gpus=self.decode.gpus,
        )


def dynamo_scene() -> Scene:
    """Dynamo's own replay: one GPU a worker, K/V whole over 25 GB/s after the prompt."""

    def group(role: Role) -> WorkerGroup:
        return WorkerGroup(
            name=str(role),
            role=role,
            num_workers=1,
            curves=DYNAMO_STEPS,
            kv_tokens=_POOL_TOKENS,
            max_batch_tokens=8192,
        )

    return Scene(
        prefill=group(Role.PREFILL),
        decode=group(Role.DECODE),
        handoff=Handoff(token_nbytes=131_072, num_layers=32, schedule=Schedule.REQUEST),
        topology=Topology(
            egress_bytes_per_us=25_000.0, ingress_bytes_per_us=25_000.0, latency_us=0.0
        ),
        route="local_cache_aware",
    )
