"""The goodput of one instance of each candidate, one phase at a time (simu_prefill, simu_decode).

The other phase takes no time and no room, so each is a bound for every deployment that has it. What
waits for decode has no first token yet, as in production, so decode answers to both clocks; prefill
answers to the first.

Within a budget of GPUs a configuration is useless if smaller or equal ones, replicated on its GPUs,
serve more: it is dropped as soon as its simulations show that.
"""

from collections.abc import Sequence

import msgspec

from baton.core.ids import Role
from baton.planner.goodput.answer import GoodputAnswer
from baton.planner.goodput.find import search
from baton.planner.placement.ask import Ask, Say, silent
from baton.planner.placement.deployments import decode_only, prefill_only, prompts_alone
from baton.planner.placement.phases import PhaseCandidate
from baton.planner.placement.space import Candidate, Space
from baton.planner.placement.waves import in_waves
from baton.sim.fast.workload import FastWorkload


class PhaseFound(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate's goodput in one phase."""

    candidate: PhaseCandidate
    """At what was found; a dropped one at 0."""
    answer: GoodputAnswer

    @property
    def bound_per_s(self) -> float:
        """What it serves at most: the incumbent's rate for one that was dropped."""
        return self.answer.rate.high if self.answer.is_pruned else self.candidate.goodput_per_s


class _Task(msgspec.Struct, frozen=True):
    candidate: Candidate
    max_batch_tokens: int


def search_phase(
    space: Space,
    role: Role,
    workload: FastWorkload,
    ask: Ask,
    *,
    prunes: bool = True,
    max_gpus: int | None = None,
    say: Say = silent,
) -> list[PhaseFound]:
    """Of every candidate and, for prefill, every batch size; fewest GPUs first."""
    is_prefill = role is Role.PREFILL
    batches = space.serving.prefill_batches if is_prefill else (0,)
    tasks = [
        _Task(candidate, batch)
        for candidate in sorted(space.candidates, key=lambda one: (one.gpus, one.parallel.pp))
        for batch in batches
        if max_gpus is None or candidate.gpus <= max_gpus
    ]
    requests = prompts_alone(workload) if is_prefill else workload
    targets = ask.ttft_alone if is_prefill else ask.targets
    settings = ask.ranking(targets)
    found: list[PhaseFound] = []

    def run(task: _Task) -> GoodputAnswer:
        if is_prefill:
            deployment = prefill_only(task.candidate, space.serving, task.max_batch_tokens)
        else:
            deployment = decode_only(task.candidate, space.serving)
        least = replicated(found, task.candidate.gpus) if prunes else 0.0
        # The instant prefill worker beside a decode instance has no GPU.
        answer = search(deployment, requests, settings, least)
        return msgspec.structs.replace(answer, num_gpus=task.candidate.gpus)

    def after(task: _Task, answer: GoodputAnswer) -> None:
        say(f"{role} {task.candidate.parallel}: {answer}")
        found.append(
            PhaseFound(
                candidate=PhaseCandidate(
                    parallel=task.candidate.parallel,
                    goodput_per_s=answer.rate.value,
                    max_batch_tokens=task.max_batch_tokens,
                ),
                answer=answer,
            )
        )

    in_waves(tasks, run, after)
    return found


def replicated(found: Sequence[PhaseFound], num_gpus: int) -> float:
    """The most that replicas of one smaller or equal configuration serve on so many GPUs."""
    return max(
        (
            num_gpus // one.candidate.parallel.gpus * one.candidate.goodput_per_s
            for one in found
            if one.candidate.parallel.gpus <= num_gpus
        ),
        default=0.0,
    )


def best_batches(found: Sequence[PhaseFound]) -> list[PhaseFound]:
    """Of each cut the batch size that serves most; the smaller one of equals."""
    by_cut: dict[str, PhaseFound] = {}
    for one in found:
        key = str(one.candidate.parallel)
        if key not in by_cut or one.bound_per_s > by_cut[key].bound_per_s:
            by_cut[key] = one
    return list(by_cut.values())
