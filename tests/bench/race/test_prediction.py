"""Cells of a race in the simulated host: which profile counts, and what is compared."""

import json

import msgspec
import pytest
from tests.policy.profiles import make_profile

from baton.bench.race.arm import arms
from baton.bench.race.calibration import Calibration
from baton.bench.race.cells import Cell, Schedule
from baton.bench.race.contest import long_prompts
from baton.bench.race.prediction import by_threads, predict, require_checkpoint
from baton.bench.race.standing import stand
from baton.bench.race.verdicts import fidelity
from baton.config import BatonConfig
from baton.engine.identity import checkpoint_hash
from baton.errors import ConfigError
from baton.goodput.slo import SLOTargets
from baton.sim.replay.replay import replay
from baton.sim.replay.setup import ReplaySetup

FIELD = arms(2, 64)
SCHEDULE = Schedule(repetitions=2, duration_s=4.0, seed=1)
TARGETS = SLOTargets(ttft_us=10_000_000, tpot_us=10_000_000)


def replayed_cells(arm, contest, profile):
    """What a machine would have measured that is exactly the simulated one."""
    setup = ReplaySetup.from_config(arm.configure(BatonConfig()), max_model_len=8192)
    for repetition in range(2):
        workload = contest.cell(2.0, SCHEDULE.duration_s, SCHEDULE.seed + repetition)
        records = replay(workload, setup, profile)
        yield Cell(
            arm=arm.name,
            contest=contest.name,
            rate=2.0,
            repetition=repetition,
            num_requests=len(records),
            records=tuple(records),
            phases=(),
        )


def test_every_arm_with_a_profile_is_predicted_and_a_true_machine_agrees():
    profile, contest, said = make_profile(), long_prompts(), []
    cells = [cell for arm in FIELD for cell in replayed_cells(arm, contest, profile)]
    calibration = Calibration(contest=contest.name, mean_ttft_us=1e5, mean_tpot_us=1e4)
    standing = stand(contest, FIELD, cells, TARGETS, calibration, safety_margin_us=0)
    found = predict(
        cells, [standing], [contest], FIELD, BatonConfig(), SCHEDULE, {1: profile}, said.append
    )
    assert {one.arm for one in found} == {"replicas", "replicas-chunked", "split"}
    assert "no profile for the threads of colocated, colocated-chunked" in said[0]
    assert all(one.predicted == one.measured for one in found)
    assert all(one.ttft_error < 0.01 and one.tpot_error < 0.01 for one in found)
    assert fidelity(found).met
    off = [msgspec.structs.replace(one, predicted=one.measured - 0.2) for one in found]
    assert not fidelity(off).met


def test_one_profile_for_each_number_of_threads():
    profile = make_profile()
    assert by_threads([profile]) == {1: profile}
    with pytest.raises(ConfigError, match="two profiles of an engine of 1 threads"):
        by_threads([profile, profile])


def test_a_profile_of_another_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 8}))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    profile = make_profile()
    with pytest.raises(ConfigError, match="measured with another model"):
        require_checkpoint([profile], tmp_path)
    subject = profile.subject
    identity = msgspec.structs.replace(subject.identity, checkpoint_hash=checkpoint_hash(tmp_path))
    same = msgspec.structs.replace(subject, identity=identity)
    require_checkpoint([msgspec.structs.replace(profile, subject=same)], tmp_path)
    require_checkpoint([], tmp_path / "nowhere")
