"""`python -m baton.bench.trace_cost`: decode throughput with traces and live telemetry on and off.

Two deployments share the cores; their decode steps are taken in turn, the first of a round changing
places, and the ratio is the median over the rounds.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from pathlib import Path

import msgspec

from baton.bench.overhead import served_ms
from baton.bench.steps import Case
from baton.config import BatonConfig, load_config
from baton.errors import BatonError
from baton.runtime.deployment import deploy

MAX_COST = 0.02


class TraceCost(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over the rounds, in milliseconds a step; `ratio` is on over off of each round."""

    case: Case
    on_ms: float
    off_ms: float
    ratio: float
    rounds: int

    @property
    def lost(self) -> float:
        """Of the decode throughput."""
        return 1 - 1 / self.ratio


async def measure_trace_cost(config: BatonConfig, case: Case, rounds: int) -> TraceCost:
    """Alternate the decode steps of both. Raises BatonError where a deployment does not start."""
    off_config = msgspec.structs.replace(
        config, telemetry=msgspec.structs.replace(config.telemetry, live=False)
    )
    with tempfile.TemporaryDirectory() as folder:
        async with (
            deploy(config, lambda *_: None, trace_dir=Path(folder)) as on,
            deploy(off_config, lambda *_: None) as off,
        ):
            for deployment in (on, off):
                await deployment.wait_ready(config.cluster.start_timeout_s)
            steps: dict[str, list[float]] = {"on": [], "off": []}
            for number in range(rounds + 1):
                turns = [("on", on), ("off", off)]
                for name, deployment in turns[:: 1 if number % 2 else -1]:
                    steps[name].append(await served_ms(deployment, case, number))
        if not any(Path(folder).iterdir()):
            raise BatonError("the deployment with traces wrote none")
    ons, offs = steps["on"][1:], steps["off"][1:]  # the first round warms both up
    return TraceCost(
        case=case,
        on_ms=statistics.median(ons),
        off_ms=statistics.median(offs),
        ratio=statistics.median(a / b for a, b in zip(ons, offs, strict=True)),
        rounds=rounds,
    )


def main() -> None:
    """Print what tracing costs; exit 1 beyond the limit."""
    flags = argparse.ArgumentParser(prog="python -m baton.bench.trace_cost", description=__doc__)
    flags.add_argument("--model", default="smollm2")
    flags.add_argument("--batch", type=int, default=16)
    flags.add_argument("--context", type=int, default=128)
    flags.add_argument("--rounds", type=int, default=9)
    asked = flags.parse_args()
    load = os.getloadavg()[0]
    try:
        config = load_config(None, [f'model.name="{asked.model}"'])
        case = Case(batch=asked.batch, context=asked.context)
        found = asyncio.run(measure_trace_cost(config, case, asked.rounds))
    except BatonError as error:
        sys.exit(str(error))
    print(
        f"{found.case.name} at {asked.context} tokens of context, {found.rounds} rounds in turn, "
        f"load {load:.1f}: a step takes {found.on_ms:.2f} ms with traces and live telemetry, "
        f"{found.off_ms:.2f} ms without; throughput lost {100 * found.lost:.1f} %, limit "
        f"{100 * MAX_COST:.0f} %"
    )
    sys.exit(int(found.lost > MAX_COST))


if __name__ == "__main__":
    main()
