"""Sarathi-Serve's ablation: hybrid batches without chunks, chunks without hybrid batches, both."""

from collections.abc import Callable

import msgspec
import numpy as np

from baton.goodput.student import student_mean
from baton.hardware.model import find_model
from baton.hardware.parallel import Parallel
from baton.hardware.predictor import find_predictor
from baton.hardware.system import find_system
from baton.planner.goodput.draws import Draws, draw
from baton.planner.goodput.prober import AT_ONCE, US_PER_S
from baton.planner.placement.cluster import Cluster
from baton.planner.placement.deployments import mixed_pool
from baton.planner.placement.space import Serving, Space, find_space
from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.row import SHAPE, Row, fact_row
from baton.sim.fast.result import FastResult
from baton.sim.fast.run import simulate_fast
from baton.sim.fast.workload import FastWorkload, pack
from baton.workload.load import load_trace

MODEL, SYSTEM, TP = "Yi-34B", "a100_sxm", 2
BUDGET, NUM_REQUESTS = 1024, 128
LOAD = 0.7
"""Of the rate at which all requests, sent at once, are worked off; the paper gives no rate."""
POLICIES = {"hybrid": "orca", "chunks": "phase_pure", "both": "sarathi_serve"}
"""Whole prompts beside decodes; chunks and decodes in turn; chunks beside decodes."""
TRACES = {
    "openchat_sharegpt4": "lengths/sharegpt_8k_llama2_tokenizer.csv",
    "arxiv_summarization": "lengths/arxiv_summarization_llama2_tokenizer.csv",
}
PUBLISHED_S = {
    "openchat_sharegpt4": {"hybrid": (0.53, 0.68), "chunks": (1.04, 0.17), "both": (0.76, 0.14)},
    "arxiv_summarization": {"hybrid": (3.78, 1.38), "chunks": (5.38, 0.20), "both": (3.90, 0.17)},
}
"""Median TTFT and P99 TBT."""


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    ttft_s: float
    """Median."""
    tbt_s: float
    """P99 of the times between tokens."""


def _run(context: Context) -> list[Row]:
    space = _space(context)
    return [row for name in TRACES for row in _rows(name, _latencies(context, space, name))]


def _space(context: Context) -> Space:
    model, system = find_model(MODEL), find_system(SYSTEM)
    predictor = find_predictor(model, system, data=context.folder, name="roofline")
    cluster = Cluster(num_nodes=1, gpus_per_node=TP, inner_bytes_per_s=300e9, node_bytes_per_s=1e9)
    return find_space(
        model,
        system,
        predictor,
        cluster,
        serving=Serving(keeps_prefixes=False),
        parallels=[Parallel(tp=TP)],
    )


def _latencies(context: Context, space: Space, name: str) -> dict[str, list[Latency]]:
    """Of each arm, one run a seed; all arms see the same requests at the same rate."""
    trace = pack(load_trace(context.file(TRACES[name])))
    found: dict[str, list[Latency]] = {arm: [] for arm in POLICIES}
    for seed in context.seeds:
        context.say(f"{name}, seed {seed}")
        drawn = draw(trace, NUM_REQUESTS, seed, Draws())
        rate = LOAD * _throughput(space, drawn)
        for arm, policy in POLICIES.items():
            found[arm].append(_latency(_simulated(space, policy, drawn.at_rate(rate))))
    return found


def _throughput(space: Space, drawn: FastWorkload) -> float:
    result = _simulated(space, POLICIES["both"], drawn.at_rate(AT_ONCE))
    return len(drawn) * US_PER_S / result.duration_us


def _simulated(space: Space, policy: str, requests: FastWorkload) -> FastResult:
    deployment = mixed_pool(
        space.candidates[0], space.serving, 1, batch_policy=policy, max_batch_tokens=BUDGET
    )
    return simulate_fast(deployment, requests)


def _latency(result: FastResult) -> Latency:
    shares = np.cumsum(result.gap_counts) / max(1, result.gap_counts.sum())
    place = int(np.searchsorted(shares, 0.99))
    return Latency(
        ttft_s=float(np.nanmedian(result.ttft_us)) / US_PER_S,
        tbt_s=float(result.gap_edges_us[place + 1]) / US_PER_S,
    )


def _rows(name: str, found: dict[str, list[Latency]]) -> list[Row]:
    conditions = (
        f"{MODEL} on 2 A100 by a roofline, budget {BUDGET}, {NUM_REQUESTS} requests, Poisson at "
        f"{LOAD:g} of the throughput (the paper names no rate), ORCA / alternating chunks / "
        "Sarathi-Serve"
    )
    if name == "arxiv_summarization":
        conditions += "; prompts up to 4096 tokens only"
    return [
        _order(name, "P99 TBT", "both <= chunks < hybrid", found, _tbt, 1, conditions),
        _order(name, "median TTFT", "hybrid < both < chunks", found, _ttft, 0, conditions),
    ]


def _tbt(latency: Latency) -> float:
    return latency.tbt_s


def _ttft(latency: Latency) -> float:
    return latency.ttft_s


def _order(
    name: str,
    clock: str,
    order: str,
    found: dict[str, list[Latency]],
    value: Callable[[Latency], float],
    column: int,
    conditions: str,
) -> Row:
    means = {arm: student_mean([value(one) for one in runs]) for arm, runs in found.items()}
    published = ", ".join(f"{arm} {one[column]}" for arm, one in PUBLISHED_S[name].items())
    met = _holds(order, {arm: mean.value for arm, mean in means.items()})
    return fact_row(
        "r28",
        f"{name}: {clock}, s",
        target=f"{order} ({published})",
        measured=", ".join(f"{arm} {mean.value:.3g}" for arm, mean in means.items()),
        met=met,
        tolerance="order, strict",
        interval="; ".join(
            f"{arm} [{mean.low:.3g}, {mean.high:.3g}]" for arm, mean in means.items()
        )
        + f", n = {len(found['both'])}",
        why=conditions,
        kind=SHAPE,
    )


def _holds(order: str, values: dict[str, float]) -> bool:
    """An order as it is written: names with < or <= between them."""
    words = order.split()
    return all(
        values[words[i - 1]] < values[words[i + 1]]
        if words[i] == "<"
        else values[words[i - 1]] <= values[words[i + 1]]
        for i in range(1, len(words), 2)
    )


REPRODUCTION = Reproduction(
    target_id="r28",
    title="Sarathi-Serve: ablation of chunks and hybrid batches",
    source="Sarathi-Serve (OSDI'24), ablation table",
    run=_run,
    files=tuple(TRACES.values()),
)
