"""`--explain`: for each number its formula, its source, and how many samples it rests on."""

from collections.abc import Iterator

import msgspec

from baton.planner.plan.inputs import Inputs
from baton.planner.plan.result import ArmReport, PlanResult
from baton.planner.plan.verdict import LEVEL


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One number."""

    name: str
    value: str
    formula: str
    source: str


def explain(result: PlanResult, inputs: Inputs) -> list[Fact]:
    """Every number of the table, in its order."""
    return [*_inputs(result, inputs), *_steps(result), *_arms(result), *_margin(result)]


def _inputs(result: PlanResult, inputs: Inputs) -> Iterator[Fact]:
    model, system, space = inputs.model, inputs.system, inputs.space
    yield Fact(
        name="weights of one copy",
        value=f"{space.copy_nbytes} bytes",
        formula=f"{model.num_parameters} parameters x {model.weight_nbytes_per_param:g} bytes",
        source=model.source,
    )
    yield Fact(
        name="K/V of one token",
        value=f"{space.token_nbytes} bytes",
        formula="K and V of every layer, or its latent row",
        source=model.source,
    )
    yield Fact(
        name="machine",
        value=str(space.cluster),
        formula=(
            f"{system.memory_nbytes / 1e9:.4g} GB and {system.memory_bytes_per_s / 1e9:.4g} GB/s a "
            f"GPU, links {space.cluster.inner_bytes_per_s / 1e9:.4g} GB/s inside and "
            f"{space.cluster.node_bytes_per_s / 1e9:.4g} GB/s out of a node"
        ),
        source=system.source,
    )
    for one in space.candidates:
        yield Fact(
            name=f"K/V of one {one.parallel}",
            value=f"{one.kv_tokens} tokens",
            formula=(
                f"({inputs.question.utilization:g} of memory - weights - activations - reserve) / "
                "bytes of a token, or as the source measured it"
            ),
            source=f"{model.name} on {system.name}",
        )
    yield Fact(
        name="requests",
        value=f"{result.num_requests} in the trace",
        formula=f"{result.draws}, stretched to each rate",
        source=result.trace,
    )


def _steps(result: PlanResult) -> Iterator[Fact]:
    source = result.provenance
    for one in source.sources:
        yield Fact(
            name="step times",
            value=f"{source.predictor}, within about {source.error_share:.0%}",
            formula=source.error,
            source=one,
        )
    for name, lacks in source.passed_over:
        yield Fact(name="passed over", value=name, formula=lacks, source="")


def _arms(result: PlanResult) -> Iterator[Fact]:
    for name, arm in result.arms.items():
        yield Fact(
            name=f"{name}: goodput",
            value=f"{arm.goodput} requests/s",
            formula=(
                f"highest rate at which the requests of all seeds together reach "
                f"{result.attainment:.4g} by the contract {result.contract!r}: doubling and "
                f"bisection for each seed, then all of them at one rate; {LEVEL:.0%} interval by "
                "Student's t over the seeds, not below the noise of attainment and the grid"
            ),
            source=f"{arm.num_simulations} simulations, {arm.requests}; {arm.length}",
        )
        yield Fact(
            name=f"{name}: per GPU",
            value=str(arm.per_gpu),
            formula=f"goodput / {arm.num_gpus} GPUs, idle ones included",
            source="",
        )
        yield from _at(name, arm, result)
        yield Fact(
            name=f"{name}: optimal over",
            value=f"{arm.searched.num_configurations} configurations",
            formula=arm.searched.statement,
            source="",
        )


def _at(name: str, arm: ArmReport, result: PlanResult) -> Iterator[Fact]:
    at = arm.at
    seeds = ", ".join(map(str, at.seeds))
    yield Fact(
        name=f"{name}: TTFT and TPOT",
        value=f"p90 {at.ttft.p90_ms or 0:.4g} and {at.tpot.p90_ms or 0:.4g} ms",
        formula=f"first token - arrival; {result.rule.rpartition(', ')[2]}",
        source=f"{at.num_requests} judged requests at {at.rate_per_s:.4g}/s, seeds {seeds}",
    )
    yield Fact(
        name=f"{name}: meet both",
        value=str(at.joint_met),
        formula=(
            f"counted request by request ({result.rule}); binomial interval, widened for requests "
            "that share a queue"
        ),
        source=f"{at.num_requests} requests",
    )
    if arm.paths:
        yield Fact(
            name=f"{name}: K/V moved",
            value=f"{at.moved_nbytes_per_s / 1e9:.4g} GB/s",
            formula=(
                "prompt tokens that the decode worker lacked x bytes of a token / time; what goes "
                "into a node has left another, and is counted once"
            ),
            source=f"the same simulations; its links: {'; '.join(map(str, arm.paths))}",
        )
    yield Fact(
        name=f"{name}: residency",
        value=str(arm.residency),
        formula="copies x bytes of a copy; tokens of all pools x bytes of a token",
        source="",
    )


def _margin(result: PlanResult) -> Iterator[Fact]:
    margin = result.verdict.margin
    yield Fact(
        name="margin",
        value="-" if margin.ratio is None else str(margin.ratio),
        formula=(
            f"goodput of split / colocated, seed by seed on the same requests; geometric mean, "
            f"{LEVEL:.0%} Student interval of its logarithm, not below the grid of rates; split is "
            f"advised when the low end exceeds {1 + margin.safety:.4g}"
        ),
        source=f"seeds {', '.join(map(str, result.seeds))}",
    )
