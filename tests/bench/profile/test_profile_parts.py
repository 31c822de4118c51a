"""A measurement without an engine: shapes, journal, and what points are turned into."""

import json
import random

import pytest
from tests.policy.profiles import GRID, STEPS, make_profile, make_subject

from baton.bench.overhead import OverheadRow
from baton.bench.payload import PayloadRow
from baton.bench.profile.assemble import assemble, contention, median_points
from baton.bench.profile.journal import Header, Journal, Sample, Served, Transferred
from baton.bench.profile.overhead import step_overhead
from baton.bench.profile.report import is_within_bound
from baton.bench.profile.shapes import (
    Room,
    Shape,
    contention_pairs,
    decode,
    fit_grid,
    held_out,
    prefill,
)
from baton.bench.profile.transfer import transfer_cost
from baton.bench.steps import Case
from baton.errors import BatonError, ConfigError
from baton.policy.service_profile import StepOverhead, StepPhase, TransferCost, phase_of

ROOM = Room(max_len=2048, max_rows=512, max_seqs=32, num_blocks=700, block_size=16)
SMALL = Room(max_len=64, max_rows=8, max_seqs=2, num_blocks=8, block_size=16)
HEADER = Header(subject=make_subject(), grid=GRID, seed=1, quick=False)
TRANSFER = make_profile().transfer


# -- shapes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("room", [ROOM, SMALL])
def test_nothing_is_asked_of_an_engine_that_it_cannot_hold(room, quick):
    fitted = fit_grid(room, quick=quick)
    judged = held_out(room, 3, quick=quick, known=fitted)
    assert len(set(fitted)) == len(fitted) and not set(fitted) & set(judged)
    for shape in (*fitted, *judged, *(s for pair in contention_pairs(room) for s in pair)):
        assert room.holds(shape), shape
        assert all(length >= 2 for length in shape.visible_lengths)


def test_held_out_points_are_drawn_by_seed_from_every_phase():
    fitted = fit_grid(ROOM, quick=False)
    once = held_out(ROOM, 3, quick=False, known=fitted)
    assert once == held_out(ROOM, 3, quick=False, known=fitted)
    assert once != held_out(ROOM, 4, quick=False, known=fitted)
    phases = [phase_of(s.prefills, s.visible_lengths) for s in once]
    assert [phases.count(phase) for phase in StepPhase] == [16, 16, 16]


def test_contention_is_measured_against_the_other_phase():
    for measured, busy in contention_pairs(ROOM):
        assert bool(measured.prefills) != bool(busy.prefills)


# -- journal -----------------------------------------------------------------------------------


def sample(number: int, shape: Shape, wall_us: float = 1000.0, **fields) -> Sample:
    return Sample(round=number, shape=shape, wall_us=wall_us, cpu_us=wall_us, **fields)


def test_a_journal_goes_on_where_it_ended(tmp_path):
    path = tmp_path / "j"
    journal = Journal.open(path, HEADER)
    journal.add(sample(0, prefill(4)))
    journal.add(Transferred(cost=TRANSFER))
    journal.close()
    again = Journal.open(path, HEADER)
    assert again.num_resumed == 2
    assert again.samples() == [sample(0, prefill(4))]
    again.add(sample(1, decode(2, 30)))
    again.close()
    third = Journal.open(path, HEADER)
    assert third.num_resumed == 3
    third.archive(tmp_path / "points")
    assert not path.exists() and (tmp_path / "points").exists()
    assert Journal.open(path, HEADER).num_resumed == 0


def test_a_journal_cut_anywhere_loses_its_last_line_only(tmp_path):
    path = tmp_path / "j"
    journal = Journal.open(path, HEADER)
    for number in range(4):
        journal.add(sample(number, prefill(4)))
    journal.close()
    whole = path.read_bytes()
    header_nbytes = whole.index(b"\n") + 1
    for end in range(0, len(whole), 41):
        path.write_bytes(whole[:end])
        cut = Journal.open(path, HEADER)
        assert cut.num_resumed == max(0, whole[:end].count(b"\n") - 1)
        cut.add(sample(9, prefill(8)))
        cut.close()
        repaired = Journal.open(path, HEADER)
        assert repaired.samples()[-1] == sample(9, prefill(8))
        assert path.read_bytes()[:header_nbytes] == whole[:header_nbytes]
        repaired.close()


@pytest.mark.parametrize(
    ("header", "named"),
    [
        (Header(subject=make_subject(dtype="bfloat16"), grid=GRID, seed=1, quick=False), "dtype"),
        (Header(subject=make_subject(block_size=32), grid=GRID, seed=1, quick=False), "K/V layout"),
        (Header(subject=make_subject(), grid=GRID, seed=2, quick=False), "seed: 1, not 2"),
        (Header(subject=make_subject(), grid=GRID, seed=1, quick=True), "quick"),
    ],
)
def test_points_of_two_runs_are_never_mixed(tmp_path, header, named):
    path = tmp_path / "j"
    Journal.open(path, HEADER).close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=named) as refused:
        Journal.open(path, header)
    assert str(path) in str(refused.value) and "delete it" in str(refused.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("line", [b"x\n", b"{}\n", b'{"type":"sample"}\n', b"\xff\n", b"\n"])
def test_a_corrupt_line_is_named(tmp_path, line):
    path = tmp_path / "j"
    journal = Journal.open(path, HEADER)
    journal.add(sample(0, prefill(4)))
    journal.close()
    path.write_bytes(path.read_bytes() + line + b'{"type":"sample"')
    with pytest.raises(ConfigError, match=r"line 3: .*delete the file"):
        Journal.open(path, HEADER)
    path.write_bytes(line)
    with pytest.raises(ConfigError, match="line 1"):
        Journal.open(path, HEADER)


# -- what points are turned into ---------------------------------------------------------------


def full_journal(path, noise: float = 0.01) -> Journal:
    """As a run on a machine whose steps take exactly what `STEPS` says, but for the noise."""
    rng = random.Random(11)
    journal = Journal.open(path, HEADER)
    fitted = fit_grid(ROOM, quick=False)
    judged = held_out(ROOM, 1, quick=False, known=fitted)
    for number in range(3):
        for shape in (*fitted, *judged):
            wall_us = STEPS.step_us(shape.prefills, shape.visible_lengths)
            wall_us *= 1 + rng.gauss(0, noise)
            journal.add(sample(number, shape, wall_us, held_out=shape in judged))
        for shape, busy in contention_pairs(ROOM):
            factor = 1.12 if shape.prefills else 1.3
            journal.add(sample(number, shape, 1000.0, paired=True))
            journal.add(sample(number, shape, 1000.0 * factor, paired=True, beside=busy))
    journal.add(Transferred(cost=TRANSFER))
    journal.add(Served(overhead=StepOverhead(step_us=200.0, sequence_us=10.0)))
    return journal


def test_a_whole_journal_makes_the_profile_of_its_machine(tmp_path):
    journal = full_journal(tmp_path / "j")
    profile = assemble(journal, "2026-01-01T00:00:00+00:00")
    assert is_within_bound(profile)
    assert all(error.num_points == 16 for error in profile.errors.values())
    assert profile.contention.is_measured
    assert profile.contention.prefill_beside_decode == pytest.approx(1.12)
    assert profile.contention.decode_beside_prefill == pytest.approx(1.3)
    assert profile.transfer == TRANSFER and profile.overhead.step_us == 200
    assert profile.steps.base_us == pytest.approx(STEPS.base_us, rel=0.05)
    assert profile.num_points == len(median_points(journal.samples()))
    # 2 * 106 million block weights a row, at 2000 to 1800 us a row.
    assert profile.roofline.flops_per_us == pytest.approx(212.3e6 / 1850, rel=0.05)
    assert profile == assemble(journal, "2026-01-01T00:00:00+00:00")


def test_without_pairs_contention_says_that_it_is_not_measured():
    alone = contention([sample(0, prefill(4)), sample(0, decode(1, 20))])
    assert (alone.prefill_beside_decode, alone.decode_beside_prefill) == (1, 1)
    assert not alone.is_measured


def test_a_noisy_machine_is_seen_to_be_one(tmp_path):
    profile = assemble(full_journal(tmp_path / "j", noise=0.3), "now")
    assert not is_within_bound(profile)


def test_an_unfinished_journal_makes_no_profile(tmp_path):
    journal = full_journal(tmp_path / "j")
    journal.lines = [line for line in journal.lines if not isinstance(line, Served)]
    with pytest.raises(BatonError, match="never measured"):
        assemble(journal, "now")


def test_rounds_that_lost_their_core_do_not_count():
    shape = prefill(4)
    kept = [sample(number, shape, wall_us) for number, wall_us in enumerate((1000.0, 1010.0))]
    lost = [
        Sample(round=number, shape=shape, wall_us=5000.0 + number, cpu_us=900.0)
        for number in range(2, 6)
    ]
    assert [point.step_us for point in median_points([*kept, *lost])] == [1005.0]
    assert [point.step_us for point in median_points(lost)] == [5002.0]


def payload_row(nbytes: int, checksum: bool, latency_us: float) -> PayloadRow:
    return PayloadRow(
        nbytes=nbytes, checksum=checksum, payload_gbps=1, memcpy_gbps=10, ratio=0.5, ceiling=0.5,
        latency_us=latency_us, memcpy_us=1, memcpy_cpu_share=1,
    )  # fmt: skip


def test_a_handoff_is_split_into_its_copy_its_fixed_part_and_its_read_back():
    # 5 GB/s of copy is 5000 bytes/us; beyond it 70 us fixed and 8000 bytes/us of read-back.
    rows = [
        payload_row(nbytes, True, nbytes / 5000 + 70 + nbytes / 8000)
        for nbytes in (1_000_000, 4_000_000)
    ]
    cost = transfer_cost(rows, checksum=True)
    assert cost.bytes_per_us == pytest.approx(5000)
    assert cost.operation_us == pytest.approx(70)
    assert cost.digest_bytes_per_us == pytest.approx(8000)
    assert cost.copy_us(5000) == pytest.approx(71)
    assert cost.digest_us(8000) == pytest.approx(1)
    plain = [payload_row(n, False, n / 5000 + 70) for n in (1_000_000, 4_000_000)]
    assert transfer_cost(plain, checksum=False).digest_us(8000) == 0
    assert (
        TransferCost(
            bytes_per_us=1, operation_us=0, digest_bytes_per_us=0, checksum=True
        ).digest_us(10)
        == 0
    )


def overhead_row(batch: int, bare_ms: float, served_ms: float) -> OverheadRow:
    return OverheadRow(
        case=Case(batch=batch, context=128), bare_ms=bare_ms, served_ms=served_ms, ratio=1, limit=2
    )


def test_overhead_is_split_into_step_and_sequence():
    rows = [overhead_row(1, 30, 30.25), overhead_row(8, 40, 40.6)]
    overhead = step_overhead(rows)
    assert overhead.sequence_us == pytest.approx(50) and overhead.step_us == pytest.approx(200)
    assert overhead.us(8) == pytest.approx(600)
    faster = step_overhead([overhead_row(1, 30, 29), overhead_row(8, 40, 39)])
    assert (faster.step_us, faster.sequence_us) == (0, 0)


def test_a_journal_is_readable_without_baton(tmp_path):
    full_journal(tmp_path / "j").close()
    lines = [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()]
    assert lines[0]["type"] == "header" and lines[0]["format"] == "baton.profile_journal/1"
    assert {line["type"] for line in lines} == {"header", "sample", "transfer", "overhead"}
