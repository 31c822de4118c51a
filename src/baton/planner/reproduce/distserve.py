"""What the results of DistServe share: its fits, its testbed, its plans."""

from collections.abc import Callable, Sequence

import msgspec

from baton.goodput.slo import SLOTargets
from baton.hardware.model import find_model
from baton.hardware.parallel import Parallel
from baton.hardware.predictor import find_predictor
from baton.hardware.system import find_system
from baton.planner.placement.ask import Ask, Objective
from baton.planner.placement.cluster import Cluster
from baton.planner.placement.found import ArmSearch
from baton.planner.placement.space import Serving, Space, find_space
from baton.planner.placement.split_search import search_low_affinity, search_phases
from baton.planner.reproduce.context import Context
from baton.planner.reproduce.lengths import HUMANEVAL, SHAREGPT, SUMMARIES
from baton.sim.fast.workload import FastWorkload

FITS = (
    "distserve/profiler-a100-80g.distserve.json",
    "distserve/profiler-a100-80g.vllm.json",
    "distserve/max_num_tokens.csv",
)
LENGTHS = (SHAREGPT, HUMANEVAL, SUMMARIES)
SYSTEM = "a100_sxm"
NVLINK_BYTES_PER_S = 300e9
NODE_LINK_BYTES_PER_S = 25e9 / 8
"""25 Gb/s between nodes."""
UNBOUNDED_BATCH = 1 << 16
"""Its simulator fills a prefill batch up to all of the memory."""
UNBOUNDED_SEQS = 4096
DEGREES = (1, 2, 3, 4, 6, 8)
"""Of tensor and pipeline parallelism in its table of capacities."""
REFINED = 8
"""Pairs that are simulated at full length at most."""
SERVING = Serving(
    keeps_prefixes=False, prefill_batches=(UNBOUNDED_BATCH,), max_num_seqs=UNBOUNDED_SEQS
)


def space_of(
    context: Context,
    model: str,
    cluster: Cluster,
    *,
    predictor: str = "distserve",
    parallels: Sequence[Parallel] | None = None,
    serving: Serving = SERVING,
) -> Space:
    """Instances of a model on A100-80GB by one of its fits, or by a roofline."""
    shape, system = find_model(model), find_system(SYSTEM)
    found = find_predictor(shape, system, data=context.folder, name=predictor)
    return find_space(shape, system, found, cluster, serving=serving, parallels=parallels)


def testbed(num_nodes: int, gpus_per_node: int) -> Cluster:
    """Its machines, or some of them."""
    return Cluster(
        num_nodes=num_nodes,
        gpus_per_node=gpus_per_node,
        inner_bytes_per_s=NVLINK_BYTES_PER_S,
        node_bytes_per_s=NODE_LINK_BYTES_PER_S,
    )


def table_cuts(cluster: Cluster) -> list[Parallel]:
    """Every cut of its table within a cluster."""
    return [
        Parallel(tp=tp, pp=pp)
        for tp in DEGREES
        if tp <= cluster.gpus_per_node
        for pp in DEGREES
        if tp * pp <= cluster.num_gpus
    ]


def pair_search(
    space: Space,
    workload: FastWorkload,
    targets: SLOTargets,
    context: Context,
    *,
    draws_again: Callable[[str], None] | None = None,
) -> ArmSearch:
    """Algorithm 2: one prefill and one decode instance, the best goodput per GPU."""
    ask = Ask(
        targets=targets, objective=Objective.PER_GPU, seeds=context.seeds, most_refined=REFINED
    )
    say = draws_again or context.say
    phases = search_phases(space, workload, ask, prunes=False, say=say)
    return search_low_affinity(space, workload, ask, phases, most_instances=1, say=say)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A prefill and a decode cut."""

    prefill: Parallel
    decode: Parallel

    @property
    def num_gpus(self) -> int:
        """Of the pair."""
        return self.prefill.gpus + self.decode.gpus

    def __str__(self) -> str:
        return f"{self.prefill.tp},{self.prefill.pp} + {self.decode.tp},{self.decode.pp}"


def plan(prefill: tuple[int, int], decode: tuple[int, int]) -> Plan:
    """From (TP, PP) of each."""
    return Plan(
        prefill=Parallel(tp=prefill[0], pp=prefill[1]),
        decode=Parallel(tp=decode[0], pp=decode[1]),
    )
