"""The measurement: each server alone on the cores, in turn, round after round."""

import statistics
from collections.abc import Callable, Sequence

import msgspec

from baton.bench.load.client import run_load
from baton.bench.load.options import LoadOptions
from baton.bench.load.target import Abilities, Target
from baton.bench.peers.server import Contender, PeerServer
from baton.errors import BatonError
from baton.goodput.record import Outcome, RequestRecord
from baton.workload.request import Workload, WorkloadRequest

Say = Callable[[str], None]
_ABILITIES = frozenset({"ignore_eos", "stream_options"})
_VOCAB_SIZE = 4096


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A closed loop: `num_requests` of one length, `concurrency` of them at a time."""

    num_prompt_tokens: int
    num_output_tokens: int
    concurrency: int
    num_requests: int

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.num_prompt_tokens}/{self.num_output_tokens} x{self.concurrency}"


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens per second of one run of a shape."""

    output: float
    total: float


SHAPES = (
    Shape(num_prompt_tokens=256, num_output_tokens=32, concurrency=1, num_requests=4),
    Shape(num_prompt_tokens=256, num_output_tokens=32, concurrency=4, num_requests=8),
    Shape(num_prompt_tokens=256, num_output_tokens=32, concurrency=16, num_requests=16),
    Shape(num_prompt_tokens=1024, num_output_tokens=8, concurrency=4, num_requests=4),
)
WARM_UP = Shape(num_prompt_tokens=64, num_output_tokens=4, concurrency=2, num_requests=2)

Runs = dict[str, dict[str, list[Throughput]]]
"""By contender and shape, one entry a round."""


async def race(
    contenders: Sequence[Contender], cores: Sequence[int], shapes: Sequence[Shape], rounds: int,
    say: Say,
) -> Runs:  # fmt: skip
    """Measure every contender in every round; a server runs only while it is measured."""
    runs: Runs = {c.name: {shape.name: [] for shape in shapes} for c in contenders}
    for number in range(rounds):
        for contender in contenders:
            say(f"round {number + 1} of {rounds}: {contender.name}")
            server = await PeerServer.start(contender, cores)
            try:
                await run_shape(contender, WARM_UP, seed=0)
                for shape in shapes:
                    measured = await run_shape(contender, shape, seed=1 + number)
                    runs[contender.name][shape.name].append(measured)
                    say(f"  {shape.name}: {measured.output:.1f} output tokens/s")
            finally:
                await server.stop()
    return runs


async def run_shape(contender: Contender, shape: Shape, seed: int) -> Throughput:
    """Run one closed loop. Raises BatonError when one answer is not whole."""
    request = WorkloadRequest(
        arrival_us=0,
        num_prompt_tokens=shape.num_prompt_tokens,
        num_output_tokens=shape.num_output_tokens,
    )
    workload = Workload(
        name=shape.name, source="constant lengths", requests=(request,) * shape.num_requests
    )
    options = LoadOptions(
        seed=seed,
        max_concurrency=shape.concurrency,
        abilities=Abilities(model=contender.model, vocab_size=_VOCAB_SIZE, extra_fields=_ABILITIES),
    )
    # One connection a request: a server may close a kept one just as the next request is sent.
    target = Target(base_url=contender.url, headers={"Connection": "close"})
    records = await run_load(target, workload, options)
    return throughput(contender.name, shape, records)


def throughput(name: str, shape: Shape, records: Sequence[RequestRecord]) -> Throughput:
    """Tokens per second from the first sending to the last end."""
    for record in records:
        if record.outcome is not Outcome.COMPLETED:
            raise BatonError(f"{name}, {shape.name}: a request failed: {record.error}")
        if record.num_output_tokens != shape.num_output_tokens:
            raise BatonError(
                f"{name}, {shape.name}: an answer of {record.num_output_tokens} tokens, not "
                f"{shape.num_output_tokens}; throughputs would not be comparable"
            )
    seconds = (max(r.end_us for r in records) - min(r.sent_us for r in records)) / 1e6
    output = sum(record.num_output_tokens for record in records)
    prompt = sum(record.num_prompt_tokens for record in records)
    return Throughput(output=output / seconds, total=(output + prompt) / seconds)


def ratio(ours: Sequence[Throughput], theirs: Sequence[Throughput]) -> float:
    """Median over the rounds of our throughput over theirs; the token counts are equal."""
    return statistics.median(a.total / b.total for a, b in zip(ours, theirs, strict=True))
