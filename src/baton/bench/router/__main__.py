"""`python -m baton.bench.router`: the index and the router's decisions against their limits."""

import argparse
import os
import statistics
import sys
from collections.abc import Sequence

from baton.bench.router.figure import Figure
from baton.bench.router.footprint import weigh
from baton.bench.router.load import Load, Shape, percentile, worker_name
from baton.bench.router.ours import FleetRouter, fill_index, time_matches
from baton.bench.router.peer import RELEASE, RadixTreePeer
from baton.cache.index import BlockIndex
from baton.errors import BatonError, ConfigError
from baton.policy.routing.policies import ROUTE_POLICIES

MATCH_US = (18.0, 42.0)
"""Median and 99th percentile of a match where no peer can be asked: what the compiled RadixTree
once took on a load like this one. With the peer the ratio taken in this run decides."""
DECISION_US = (300.0, 2000.0)
BYTES_PER_BLOCK = 200.0
STORED_PER_S = 200_000.0
NUM_COMPARED = 300


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m baton.bench.router", description=__doc__)
    parser.add_argument("--blocks", type=int, default=Shape().num_blocks)
    parser.add_argument("--workers", type=int, default=Shape().num_workers)
    parser.add_argument("--questions", type=int, default=2000, help="matches of each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--dynamo-python", default="", help=f"a Python that has ai-dynamo-runtime=={RELEASE}"
    )
    return parser.parse_args(arguments)


def shape_of(options: argparse.Namespace) -> Shape:
    """The load that was asked for. Raises ConfigError."""
    for name, least in (("blocks", 20_000), ("workers", 4), ("questions", 10), ("rounds", 1)):
        if getattr(options, name) < least:
            raise ConfigError(f"--{name} {getattr(options, name)}: at least {least}")
    return Shape(num_blocks=options.blocks, num_workers=options.workers)


def run(options: argparse.Namespace) -> bool:
    """Measure and print; True when every limit is met. Raises BatonError."""
    shape = shape_of(options)
    print(f"load: {shape.text}")
    print(f"load average before: {os.getloadavg()[0]:.2f}")
    load = Load(shape)
    index, stored_per_s = fill_index(load)
    figures = measure_match(index, load, options)
    figures += [
        Figure(
            name="blocks stored",
            value=stored_per_s,
            limit=STORED_PER_S,
            unit="blocks/s",
            is_floor=True,
        ),
        Figure(
            name="memory of a process with the index alone",
            value=weigh(shape),
            limit=BYTES_PER_BLOCK,
            unit="bytes/block",
        ),
    ]
    del index
    figures += measure_decisions(shape, options)
    for figure in figures:
        print(figure.text)
    return all(figure.is_met for figure in figures)


def measure_match(index: BlockIndex, load: Load, options: argparse.Namespace) -> list[Figure]:
    """Ours alone or, with a peer, both in turn; the medians of the rounds."""
    rounds = range(options.rounds + 1)  # the first one warms up
    asked = [load.questions(options.questions, seed) for seed in rounds]
    if not options.dynamo_python:
        print(
            "PEER MISSING: nothing is compared with Dynamo's RadixTree; install "
            f"ai-dynamo-runtime=={RELEASE} somewhere and pass --dynamo-python"
        )
        ours = [time_matches(index, questions) for questions in asked]
        return _latency("match", ours[1:], MATCH_US)
    return _beside_peer(index, asked, load.shape, options.dynamo_python)


def _beside_peer(
    index: BlockIndex, asked: Sequence[list[list[bytes]]], shape: Shape, python: str
) -> list[Figure]:
    ours, theirs, figures = [], [], []
    with RadixTreePeer(python) as peer:
        rate = peer.store(Load(shape))
        _compare(index, peer, asked[0][:NUM_COMPARED], shape)
        for questions in asked:
            ours.append(time_matches(index, questions))
            theirs.append(peer.time_matches(questions))
        print(f"RadixTree of ai-dynamo-runtime {peer.version}: {rate:,.0f} blocks/s stored")
    for name, share in (("median", 0.5), ("p99", 0.99)):
        pairs = [
            (percentile(a, share), percentile(b, share))
            for a, b in zip(ours[1:], theirs[1:], strict=True)
        ]
        ratio = statistics.median(b / a for a, b in pairs)
        figures.append(
            Figure(
                name=f"match {name}: RadixTree's time over ours",
                value=ratio,
                limit=1.0,
                unit="",
                is_floor=True,
            )
        )
        print(
            f"match {name}: ours {statistics.median(a for a, _ in pairs):.1f} us, RadixTree "
            f"{statistics.median(b for _, b in pairs):.1f} us "
            f"(medians of {len(pairs)} rounds)"
        )
    return figures


def _compare(
    index: BlockIndex, peer: RadixTreePeer, questions: Sequence[list[bytes]], shape: Shape
) -> None:
    """Both must say the same of everybody, or the comparison is of different things."""
    for names, theirs in zip(questions, peer.depths(questions), strict=True):
        named = {worker_name(n, shape.num_workers): depth for n, depth in theirs.items()}
        if named != index.match(names).depths:
            raise BatonError("the RadixTree and the index disagree about who holds how much")
    print(f"{len(questions)} answers compared with the RadixTree's: equal")


def measure_decisions(shape: Shape, options: argparse.Namespace) -> list[Figure]:
    """Every policy that uses the cache, by one router over one index."""
    load = Load(shape)
    fleet = FleetRouter(load)
    fleet.hold(load)
    questions = load.questions(max(10, options.questions // 4), 99)
    figures = []
    for policy in ROUTE_POLICIES.values():
        if policy.uses_cache:
            fleet.time_decisions(policy.name, questions[:50])
            samples = fleet.time_decisions(policy.name, questions)
            figures += _latency(f"decision, {policy.name}", [samples], DECISION_US)
    return figures


def _latency(
    name: str, rounds: Sequence[Sequence[float]], limits: tuple[float, float]
) -> list[Figure]:
    return [
        Figure(
            name=f"{name}: {word}",
            value=statistics.median(percentile(samples, share) for samples in rounds),
            limit=limit,
            unit="us",
        )
        for word, share, limit in zip(("median", "p99"), (0.5, 0.99), limits, strict=True)
    ]


def main(arguments: Sequence[str]) -> int:
    """Exit 1 when a limit is not met, 2 with one line on anything that cannot be measured."""
    try:
        return 0 if run(parse(arguments)) else 1
    except BatonError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
