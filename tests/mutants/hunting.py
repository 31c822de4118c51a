"""Judges one mutant in one process: plants it, runs its killers, says what they noticed.

Nothing of baton is imported before the change is planted.
"""

import contextlib
import io
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from tests.mutants.catalogue import CATALOGUE, find
from tests.mutants.mutant import MAX_SEEDS, ByTests, Explore, Mutant, Vopr
from tests.mutants.planting import install

CONTROL = "(no mutant)"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one mutant. `fault` is empty when all is as the catalogue says."""

    name: str
    killed_by: str = ""
    cost: str = ""
    """After how many seeds, or by how many tests."""
    detail: str = ""
    fault: str = ""
    seconds: float = 0.0


def judge(name: str) -> Verdict:
    """Plant the mutant in this process and let its killers look for it."""
    began = time.monotonic()
    if name == CONTROL:
        verdict = _control()
    else:
        mutant = find(name)
        planter = install(mutant)
        verdict = _HUNTS[type(mutant.killer)](mutant)
        if not planter.is_loaded:
            fault = f"error: nothing imported {mutant.module}"
            verdict = msgspec.structs.replace(verdict, fault=fault)
    return msgspec.structs.replace(verdict, seconds=time.monotonic() - began)


# -- the simulator ---------------------------------------------------------------------------------


def _by_vopr(mutant: Mutant) -> Verdict:
    killer = mutant.killer
    assert isinstance(killer, Vopr)
    seeds = chain(killer.seeds, (s for s in range(MAX_SEEDS) if s not in killer.seeds))
    for number, (seed, checker, text) in enumerate(_outcomes(seeds), start=1):
        if not checker:
            continue
        expected = checker in killer.checkers
        return Verdict(
            name=mutant.name,
            killed_by=checker,
            cost=f"{number} seeds (seed {seed})",
            detail=text,
            fault="" if expected else f"unexpected killer {checker}: {text}",
        )
    return Verdict(name=mutant.name, cost=f"{MAX_SEEDS} seeds", fault="survived")


def _outcomes(seeds: Iterable[int]) -> Iterator[tuple[int, str, str]]:
    from baton.sim.draw import draw_plan
    from baton.sim.vopr import run_plan

    for seed in seeds:
        outcome = run_plan(draw_plan(seed))
        yield seed, outcome.checker, outcome.text


# -- the exhaustive model --------------------------------------------------------------------------

_NO_FAULTS = dict.fromkeys(
    ("num_crashes", "num_duplicates", "num_drops", "num_retries", "num_cancels"), 0
)
_MAX_STATES = 200_000


def _by_explore(mutant: Mutant) -> Verdict:
    killer = mutant.killer
    assert isinstance(killer, Explore)
    num_states, broken = _explored(killer.budgets)
    fault = ""
    if not broken:
        fault = "survived"
    elif killer.says not in broken:
        fault = f"unexpected killer: {broken}"
    return Verdict(
        name=mutant.name,
        killed_by="explore: " + (killer.says if broken else "nothing"),
        cost=f"{num_states} states",
        detail=broken,
        fault=fault,
    )


def _explored(budgets: dict[str, int]) -> tuple[int, str]:
    """How many states were seen, and what was broken."""
    from baton.sim.explore.model import Model
    from baton.sim.explore.search import Search
    from baton.sim.explore.setup import Setup

    model = Model(Setup(num_requests=1, **{**_NO_FAULTS, **budgets}))
    result = Search(model, max_states=_MAX_STATES, max_seconds=300).run()
    broken = result.counterexample.text if result.counterexample else ""
    return result.num_states, broken


def search(name: str, num_kills: int) -> str:
    """Which checkers notice a mutant on which seeds; for choosing its killers."""
    install(find(name))
    found: Counter[str] = Counter()
    first: dict[str, tuple[int, str]] = {}
    for seed, checker, text in _outcomes(range(MAX_SEEDS)):
        if checker:
            found[checker] += 1
            first.setdefault(checker, (seed, text))
        if found.total() >= num_kills:
            break
    lines = [f"{name}: {dict(found)} up to seed {seed}"]
    lines += [f"    {checker} seed {number}: {text}" for checker, (number, text) in first.items()]
    return "\n".join(lines)


# -- tests -----------------------------------------------------------------------------------------


class _Recorder:
    """A pytest plugin that remembers what failed, and where something else went wrong."""

    def __init__(self) -> None:
        self.num_passed = 0
        self.failed: dict[str, str] = {}
        self.broken: list[str] = []

    def pytest_collectreport(self, report) -> None:  # type: ignore[no-untyped-def]
        if report.failed:
            self.broken.append(f"{report.nodeid}: {str(report.longrepr)[-300:]}")

    def pytest_runtest_logreport(self, report) -> None:  # type: ignore[no-untyped-def]
        if report.when == "call" and report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.failed[report.nodeid] = crash.message if crash else str(report.longrepr)
        elif report.failed:
            self.broken.append(f"{report.nodeid}: {report.when}")
        elif report.when == "call":
            self.num_passed += 1


def _run_tests(nodes: Iterable[str]) -> _Recorder:
    import pytest

    recorder = _Recorder()
    # What differs is of no interest here, and explaining it can take longer than the test.
    quiet = ["-p", "no:cacheprovider", "-p", "no:randomly", "--assert=plain", "--tb=short", "-q"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = pytest.main([*quiet, *dict.fromkeys(nodes)], plugins=[recorder])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        recorder.broken.append(f"pytest ended with {code!r}")
    return recorder


def _by_tests(mutant: Mutant) -> Verdict:
    killer = mutant.killer
    assert isinstance(killer, ByTests)
    seen = _run_tests(killer.nodes)
    blind = [n for n in killer.nodes if not any(_is_of(failed, n) for failed in seen.failed)]
    fault = ""
    if seen.broken:
        fault = f"error: {seen.broken[0]}"
    elif blind:
        fault = f"survived {', '.join(blind)}"
    return Verdict(
        name=mutant.name,
        killed_by=", ".join(node.rpartition("::")[2] for node in killer.nodes),
        cost=f"{len(seen.failed)} of {len(seen.failed) + seen.num_passed} tests",
        detail=next(iter(seen.failed.values()), "").partition("\n")[0],
        fault=fault,
    )


def _is_of(failed: str, node: str) -> bool:
    return failed == node or failed.startswith((node + "[", node + "::"))


_HUNTS = {Vopr: _by_vopr, Explore: _by_explore, ByTests: _by_tests}


# -- the control run -------------------------------------------------------------------------------


def _control() -> Verdict:
    """Every seed and every test that convicts a mutant must find nothing where nothing is wrong."""
    killers = [mutant.killer for mutant in CATALOGUE]
    seeds = sorted({s for k in killers if isinstance(k, Vopr) for s in k.seeds})
    nodes = [n for k in killers if isinstance(k, ByTests) for n in k.nodes]
    faults = [f"seed {seed}: {checker}" for seed, checker, _ in _outcomes(seeds) if checker]
    spaces = [k.budgets for k in killers if isinstance(k, Explore)]
    for budgets in [b for number, b in enumerate(spaces) if b not in spaces[:number]]:
        broken = _explored(budgets)[1]
        faults += [f"explore {budgets}: {broken}"] if broken else []
    seen = _run_tests(nodes)
    faults += [*seen.broken, *seen.failed]
    return Verdict(
        name=CONTROL,
        cost=f"{len(seeds)} seeds, {seen.num_passed} tests",
        fault=f"fails without a mutant: {'; '.join(faults)}" if faults else "",
    )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(search(sys.argv[1], int(sys.argv[2])))
    else:
        print(msgspec.json.encode(judge(sys.argv[1])).decode())
