"""DistServe's motivation: one A100 colocated against two that prefill and one that decodes."""

from functools import lru_cache

import msgspec

from baton.goodput.interval import Estimate
from baton.goodput.slo import SLOTargets
from baton.goodput.student import student_mean
from baton.hardware.parallel import Parallel
from baton.planner.goodput import GoodputAnswer, find_goodput
from baton.planner.goodput.attained import Rule
from baton.planner.placement.deployments import (
    decode_only,
    free_topology,
    mixed_pool,
    prefill_only,
    prompts_alone,
    split,
)
from baton.planner.placement.packing import Instances, pack_free
from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.distserve import FITS, SERVING, space_of, testbed
from baton.planner.reproduce.lengths import fixed
from baton.planner.reproduce.row import Row, number_row
from baton.sim.fast.deployment import Deployment
from baton.sim.fast.workload import FastWorkload

PROMPT, OUTPUT = 512, 64
PREFILLS, DECODES = 2, 1
BATCH_TOKENS = 2048
"""vLLM's of 2023."""
PRECISION = 0.02


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Goodputs at one pair of targets, in requests a second."""

    colocated: GoodputAnswer
    """One GPU."""
    pool: GoodputAnswer
    """As many colocated GPUs as the split has, behind one queue."""
    prefill: GoodputAnswer
    decode: GoodputAnswer
    split: GoodputAnswer
    """All three GPUs as one deployment."""

    @property
    def ratio_of_phases(self) -> Estimate:
        """Goodput per GPU as the paper adds it up, over one colocated GPU's; by seed."""
        ratios = []
        for alone, first, second in zip(
            self.colocated.seeds, self.prefill.seeds, self.decode.seeds, strict=True
        ):
            system = min(PREFILLS * first.rate_per_s, DECODES * second.rate_per_s)
            ratios.append(system / (PREFILLS + DECODES) / alone.rate_per_s)
        return student_mean(ratios)

    @property
    def ratio_of_deployments(self) -> Estimate:
        """Three GPUs against three, each side behind one queue."""
        return student_mean(
            [
                one.rate_per_s / other.rate_per_s
                for one, other in zip(self.split.seeds, self.pool.seeds, strict=True)
            ]
        )


@lru_cache(maxsize=8)
def gap(context: Context, ttft_ms: int, tpot_ms: int) -> Gap:
    """By vLLM's fit of OPT-13B, prompts of 512 and answers of 64 tokens."""
    space = space_of(
        context,
        "opt-13b",
        testbed(1, PREFILLS + DECODES),
        predictor="distserve-vllm",
        parallels=[Parallel()],
        serving=msgspec.structs.replace(SERVING, prefill_batches=(BATCH_TOKENS,)),
    )
    one, serving = space.candidates[0], space.serving
    both = SLOTargets(ttft_us=ttft_ms * 1000, tpot_us=tpot_ms * 1000)
    first = SLOTargets(ttft_us=ttft_ms * 1000)
    workload = fixed(PROMPT, OUTPUT)
    groups = (
        Instances(letter="p", parallel=Parallel(), num=PREFILLS),
        Instances(letter="d", parallel=Parallel(), num=DECODES),
    )
    packing = pack_free(groups, 1, PREFILLS + DECODES)
    links = free_topology(space.cluster, packing, *groups, serving.latency_us)

    def find(deployment: Deployment, requests: FastWorkload, targets: SLOTargets) -> GoodputAnswer:
        context.say(f"{ttft_ms}/{tpot_ms} ms: " + ", ".join(g.name for g in deployment.groups))
        return find_goodput(
            deployment,
            requests,
            targets,
            relative_precision=PRECISION,
            seeds=context.seeds,
            rule=Rule(),
        )

    def pool(num: int) -> Deployment:
        return mixed_pool(
            one, serving, num, batch_policy="prefill_first", max_batch_tokens=BATCH_TOKENS
        )

    return Gap(
        colocated=find(pool(1), workload, both),
        pool=find(pool(PREFILLS + DECODES), workload, both),
        prefill=find(prefill_only(one, serving, BATCH_TOKENS), prompts_alone(workload), first),
        decode=find(decode_only(one, serving), workload, both),
        split=find(split(space, one, PREFILLS, one, DECODES, links, BATCH_TOKENS), workload, both),
    )


def _run(context: Context) -> list[Row]:
    found = gap(context, 400, 40)
    parts = (
        ("colocated, one GPU", "1.6/s", found.colocated),
        ("prefill alone, one GPU", "5.6/s", found.prefill),
        ("decode alone, one GPU", "10/s", found.decode),
    )
    conditions = (
        "vLLM's fit of OPT-13B, 512 in and 64 out, Poisson, P90 of each clock, TTFT 400 ms and "
        "TPOT 40 ms (the paper draws its targets without numbers; these are its blog's), "
        "prefill first, whole prompts up to 2048 tokens"
    )
    return [
        number_row(
            "r1",
            "goodput per GPU, 2P+1D over colocated, phases added up",
            target="2.1",
            measured=found.ratio_of_phases,
            low=1.8,
            high=2.4,
            tolerance="+- 0.3",
            why=conditions,
        ),
        number_row(
            "r1",
            "the same, three GPUs against three as whole deployments",
            target="2.1",
            measured=found.ratio_of_deployments,
            why="both sides behind one queue, which helps the colocated side more",
        ),
        *(
            number_row(
                "r1",
                what,
                target=target,
                measured=answer.rate,
                unit="/s",
                why="the fit lacks engine overhead: all three are above the paper's",
            )
            for what, target, answer in parts
        ),
    ]


REPRODUCTION = Reproduction(
    target_id="r1",
    title="DistServe: the gap between colocated and split",
    source="DistServe (OSDI'24), Figure 1",
    run=_run,
    files=FITS,
)
