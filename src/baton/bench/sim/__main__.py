"""`make bench-sim`: the fast host against its limit, beside Dynamo's replay, and other peers."""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from rich.console import Console

from baton.bench.sim.anchors import Anchors
from baton.bench.sim.duel import Duel, Say, fight
from baton.bench.sim.dynamo import RELEASE, Dynamo
from baton.bench.sim.limit import measure_limit
from baton.bench.sim.ours import run_ours
from baton.bench.sim.placement import time_placement
from baton.bench.sim.report import print_result
from baton.bench.sim.result import Result
from baton.bench.sim.scenes import ALONE, DUELS, MILLION
from baton.bench.sim.traces import write_trace
from baton.errors import BatonError, ConfigError

_WIDTH = 150
_PARTS = ("duels", "peers", "million", "placement")
_REFERENCE = "w1"
_PEER_RUNS = 3


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line. Raises ConfigError."""
    parser = argparse.ArgumentParser(prog="python -m baton.bench.sim", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of data sets; else BATON_DATA")
    parser.add_argument("--dynamo-python", default="", help=f"a Python with ai-dynamo=={RELEASE}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help=f"some of {', '.join(_PARTS)}; all without it")
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        raise ConfigError(f"--rounds {options.rounds}: at least 1")
    chosen = [name.strip() for name in options.only.split(",") if name.strip()]
    for name in chosen:
        if name not in _PARTS:
            raise ConfigError(f"--only {name}: no such part; use some of {', '.join(_PARTS)}")
    options.parts = chosen or list(_PARTS)
    given = options.data or os.environ.get("BATON_DATA", "")
    if not str(given):
        raise ConfigError("no data: name the folder of data sets with --data or BATON_DATA")
    options.data = Path(given)
    return options


def measure(options: argparse.Namespace, say: Say) -> Result:
    """One part after another; each has the machine for itself. Raises BatonError."""
    limit = measure_limit()
    say(limit.text)
    result = Result(limit=limit, load_average=os.getloadavg()[0])
    say(f"load average before: {result.load_average:.2f}")
    with tempfile.TemporaryDirectory(prefix="baton-bench-sim-") as name:
        folder = Path(name)
        dynamo = Dynamo(options.dynamo_python, folder) if options.dynamo_python else None
        if dynamo is None:
            result.missing.append(
                f"Dynamo's replay: install ai-dynamo=={RELEASE} somewhere and pass --dynamo-python;"
                " peers that no registry carries are shown with their anchors as they are"
            )
        trace = write_trace(DUELS[0].trace, options.data, folder)
        say("compiling for an empty cache")
        first, _ = run_ours(DUELS[0], trace, folder / "cache")
        result.compile_s = first.ready_s
        say(f"compiled in {first.ready_s:.0f} s")
        if "duels" in options.parts:
            result.duels = _duels(options, folder, dynamo, say)
        if "peers" in options.parts:
            _scale_peers(result, options, folder, dynamo, say)
        if "million" in options.parts:
            result.million, _ = run_ours(MILLION, None, folder / "cache")
            say(f"million: {result.million.loop_s:.1f} s")
        if "placement" in options.parts:
            result.placement = time_placement(options.data, folder / "cache")
            say(f"placement: {result.placement.seconds:.1f} s")
    return result


def _duels(
    options: argparse.Namespace, folder: Path, dynamo: Dynamo | None, say: Say
) -> list[Duel]:
    return [
        fight(
            scene,
            write_trace(scene.trace, options.data, folder),
            folder / "cache",
            dynamo,
            options.rounds,
            say,
        )
        for scene in DUELS
    ]


def _scale_peers(
    result: Result, options: argparse.Namespace, folder: Path, dynamo: Dynamo | None, say: Say
) -> None:
    anchors = Anchors(options.data)
    reference = next((duel for duel in result.duels if duel.scene == _REFERENCE), None)
    if reference is None and dynamo is not None:
        scene = next(scene for scene in DUELS if scene.name == _REFERENCE)
        trace = write_trace(scene.trace, options.data, folder)
        reference = fight(scene, trace, folder / "cache", dynamo, options.rounds, say)
    result.factor = anchors.factor(reference)
    for scene in ALONE:
        trace = write_trace(scene.trace, options.data, folder)
        outcome, _ = run_ours(scene, trace, folder / "cache", _PEER_RUNS)
        result.scaled.append(anchors.scale(scene.name, outcome, result.factor))
        say(f"{scene.name}: ours {outcome.per_s:,.0f} requests/s")


def main(arguments: list[str] | None = None) -> int:
    """Exit 1 when a target is not met, 2 with one line on anything that cannot be measured."""
    console = Console(width=_WIDTH)
    began_s = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - began_s:5.0f} s  {text}", markup=False, highlight=False)

    try:
        options = parse(arguments)
        result = measure(options, say)
        print_result(result, console)
        if options.json:
            options.json.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
    except BatonError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if result.is_met else 1


if __name__ == "__main__":
    sys.exit(main())
