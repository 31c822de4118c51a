"""From a journal to a profile: medians, the fit, and its error on what it has not seen."""

import statistics
from collections import defaultdict

from baton.bench.profile.journal import Delayed, Journal, Sample, Served, Transferred
from baton.bench.profile.shapes import Shape
from baton.errors import BatonError
from baton.policy.phase_cost import Roofline, linear_flops
from baton.policy.service_profile import (
    Contention,
    ServiceDelays,
    ServiceProfile,
    StepModel,
    StepOverhead,
    StepPhase,
    StepPoint,
    Subject,
    TransferCost,
    fit_steps,
    held_out_errors,
    phase_of,
    points_digest,
)


def assemble(journal: Journal, measured_at: str) -> ServiceProfile:
    """The profile that a complete journal makes; equal journals make equal profiles."""
    subject, samples = journal.header.subject, journal.samples()
    points = median_points(samples)
    steps = fit_steps(points, journal.header.grid)
    transfer, overhead = _parts(journal)
    return ServiceProfile(
        subject=subject,
        measured_at=measured_at,
        steps=steps,
        roofline=_roofline(subject, steps),
        transfer=transfer,
        overhead=overhead,
        contention=contention(samples),
        delays=_delays(journal),
        errors=held_out_errors(points, steps),
        num_points=len(points),
        points_digest=points_digest(points),
    )


def median_points(samples: list[Sample]) -> list[StepPoint]:
    """One point a shape: the median over its rounds that kept their core, else their shortest."""
    rounds: defaultdict[tuple[Shape, bool], list[Sample]] = defaultdict(list)
    for sample in samples:
        if not sample.paired:
            rounds[sample.shape, sample.held_out].append(sample)
    points = []
    for (shape, is_held_out), found in rounds.items():
        kept = [sample.wall_us for sample in found if sample.kept_core]
        points.append(
            StepPoint(
                prefills=shape.prefills,
                visible_lengths=shape.visible_lengths,
                step_us=statistics.median(kept or [min(sample.wall_us for sample in found)]),
                held_out=is_held_out,
            )
        )
    return points


def contention(samples: list[Sample]) -> Contention:
    """Median over shapes of the median ratio beside over alone; 1 where nothing was paired."""
    alone = {(s.round, s.shape): s.wall_us for s in samples if s.paired and s.beside is None}
    ratios: defaultdict[Shape, list[float]] = defaultdict(list)
    for sample in samples:
        if sample.beside is not None:
            ratios[sample.shape].append(sample.wall_us / alone[sample.round, sample.shape])
    by_phase: defaultdict[StepPhase, list[float]] = defaultdict(list)
    for shape, found in ratios.items():
        phase = phase_of(shape.prefills, shape.visible_lengths)
        by_phase[phase].append(statistics.median(found))

    def factor(phase: StepPhase) -> float:
        return max(1.0, statistics.median(by_phase[phase])) if by_phase[phase] else 1.0

    return Contention(
        prefill_beside_decode=factor(StepPhase.PREFILL),
        decode_beside_prefill=factor(StepPhase.DECODE),
        is_measured=bool(ratios),
    )


def _parts(journal: Journal) -> tuple[TransferCost, StepOverhead]:
    transfer = [line.cost for line in journal.lines if isinstance(line, Transferred)]
    overhead = [line.overhead for line in journal.lines if isinstance(line, Served)]
    if not transfer or not overhead:
        raise BatonError(f"{journal.path}: transfer or overhead was never measured")
    return transfer[-1], overhead[-1]


def _delays(journal: Journal) -> ServiceDelays | None:
    found = [line.delays for line in journal.lines if isinstance(line, Delayed)]
    return found[-1] if found else None


def _roofline(subject: Subject, steps: StepModel) -> Roofline:
    """Compute's rate is what many rows get out of the linear layers: the mean slope behind 64."""
    few, many = 64, max(65, steps.max_rows)
    spans = zip(steps.row_us, steps.grid.segments(few), steps.grid.segments(many), strict=True)
    slope_us = sum(cost_us * (more - less) for cost_us, less, more in spans) / (many - few)
    if slope_us <= 0:
        raise BatonError("more rows take no more time here; the measurement is too noisy to use")
    return Roofline(
        flops_per_us=linear_flops(subject.shape, 1) / slope_us,
        nbytes_per_us=subject.hardware.read_bytes_per_us,
    )
