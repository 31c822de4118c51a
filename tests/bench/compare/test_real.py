"""`baton compare` with real processes: a subset is equal, a corrupted arm is not."""

import io
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from baton.bench.compare import command
from baton.bench.compare.arm import DEFAULT, Arm
from baton.bench.compare.record import ArmRecords
from baton.bench.compare.report import Outcome
from baton.config import load_config
from baton.runtime.dataplane.nixl import is_installed

pytestmark = pytest.mark.slow
CASES = ("length-blocks-2", "hit-edge-4", "batch-prompts", "turns", "cancel-repeat", "http-stop")


@pytest.mark.parametrize("plane", ["shm", "nixl"])
def test_the_command_proves_a_subset(tmp_path: Path, plane: str) -> None:
    if plane == "nixl" and not is_installed():
        pytest.skip("NIXL is not installed: pip install 'kvbaton[nixl]'")
    out = tmp_path / "out.json"
    chosen = [word for name in CASES for word in ("--case", name)]
    baton = Path(sys.executable).with_name("baton")
    line = [baton, "compare", "--model", "tiny", "--json", out, "--data-plane", plane, *chosen]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = msgspec.json.decode(out.read_bytes(), type=Outcome)
    (comparison,) = outcome.comparisons
    assert outcome.deterministic and comparison.exact and comparison.same
    assert {verdict.case for verdict in comparison.verdicts} == set(CASES)
    modes = {v.candidate.mode for v in comparison.verdicts if v.candidate}
    assert modes == {"disaggregated"}
    assert comparison.handoffs == len(comparison.verdicts)


def test_a_corrupted_arm_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer of the disaggregated arm is drawn with another seed."""
    honest = command.run_arm

    async def corrupted(arm: Arm, *args: object) -> ArmRecords:
        records = await honest(arm, *args)  # type: ignore[arg-type]
        if arm.name != DEFAULT:
            return records
        (first, *rest) = records.records
        changed = msgspec.structs.replace(first, tokens=(*first.tokens[:-1], first.tokens[-1] ^ 1))
        return msgspec.structs.replace(records, records=(changed, *rest))

    monkeypatch.setattr(command, "run_arm", corrupted)
    plan = command.make_plan(load_config(None, ["model.name=tiny"]), None, ["turns"], False)
    console = Console(width=100, record=True, file=io.StringIO())
    assert command.compare_command(plan, console, None) == 1
    text = console.export_text()
    assert "default turns 0.0: tokens: token" in text and "1 DIFFERENT" in text


def test_a_silent_fallback_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment without a prefill worker answers the same tokens, but proves nothing."""
    plan = command.make_plan(load_config(None, ["model.name=tiny"]), None, ["length-step"], False)
    mixed = msgspec.structs.replace(plan.config.cluster, prefill=0, decode=0, mixed=1)
    config = msgspec.structs.replace(plan.config, cluster=mixed)
    monkeypatch.setattr(Arm, "config", lambda self, base, layout: config)
    console = Console(width=100, record=True, file=io.StringIO())
    assert command.compare_command(plan, console, None) == 1
    assert "ran colocated instead of disaggregated" in console.export_text()
