"""What each effect computes from its lines, and what it refuses."""

import os

import msgspec
import pytest

from baton.bench.compare.difference import Aspect, Comparison, Difference, Verdict
from baton.bench.compare.record import Record
from baton.bench.compare.report import Outcome
from baton.bench.effects.credit import Window, judge_credit, peak_in_flight
from baton.bench.effects.exactness import judge_exactness
from baton.bench.effects.ledger import awkward_lengths, bill_of
from baton.bench.effects.overlap import Exposure, exposed_us, judge_overlap, predicted_us
from baton.bench.effects.rig import Handoff
from baton.bench.effects.runahead import Arm, judge_runahead
from baton.bench.effects.runahead_child import Relay
from baton.bench.traffic import Timed
from baton.core.layout import KVLayout
from baton.errors import BatonError
from baton.runtime.diary import DiaryLine

LAYOUT = KVLayout(num_layers=4, num_kv_heads=2, head_dim=8, block_size=4, dtype_k="float16",
                  dtype_v="float16")  # fmt: skip


def line(what: str, chunk: int, at_us: int, duration_us: int = 0, nbytes: int = 1024) -> DiaryLine:
    framing = 32 if what == "received" else 0
    return DiaryLine(
        at_us=at_us,
        what=what,
        reservation_id=1,
        chunk_id=chunk,
        nbytes=nbytes,
        duration_us=duration_us,
        framing_nbytes=framing,
    )


def handoff(ready: list[int], x: int, visible: list[int], **ledger: int) -> Handoff:
    moved_us = [at_us + x for at_us in ready]
    return Handoff(
        timed=Timed(request_id="r"),
        put=tuple(line("put", i, at_us) for i, at_us in enumerate(ready)),
        moved=tuple(line("moved", i, at_us, x) for i, at_us in enumerate(moved_us)),
        received=tuple(line("received", i, at_us) for i, at_us in enumerate(visible)),
        visible=tuple(line("visible", i, at_us) for i, at_us in enumerate(visible)),
        events_us={
            "last_layer_ready": ready[-1],
            "prefill_done": ready[-1],
            "all_visible": visible[-1],
        },
        ledger={f"handoff_{name}_bytes": count for name, count in ledger.items()},
    )


READY = [25, 50, 75, 100]


@pytest.mark.parametrize(
    ("schedule", "x", "exposed"),
    [("layer", 10, 10), ("layer", 30, 45), ("request", 10, 40), ("request", 30, 120)],
)
def test_exposure_follows_the_recurrence(schedule, x, exposed):
    assert predicted_us(handoff(READY, x, [0] * 4), schedule) == exposed


def test_exposure_is_measured_from_the_last_layer():
    assert exposed_us(handoff(READY, 10, [35, 60, 85, 113])) == 13


def exposure(schedule: str, link: str, **changes: float) -> Exposure:
    x, measured = (10.0, 10.0) if link == "fast" else (30.0, 130.0)
    if schedule == "request":
        measured = 30 * x
    row = Exposure(
        schedule=schedule,
        link=link,
        n=5,
        layer_ms=20.0,
        transfer_ms=x,
        exposed_ms=measured,
        predicted_ms=measured,
    )
    return msgspec.structs.replace(row, **changes)


def overlap_rows(**changes: Exposure) -> dict[tuple[str, str], Exposure]:
    names = [(s, link) for s in ("layer", "request") for link in ("fast", "slow")]
    return {name: changes.get("_".join(name), exposure(*name)) for name in names}


@pytest.mark.parametrize(
    ("row", "changes", "met"),
    [
        ("layer_fast", {}, True),
        ("layer_fast", {"exposed_ms": 11.9}, True),
        ("layer_fast", {"exposed_ms": 12.1}, False),
        ("layer_slow", {"exposed_ms": 142.0}, True),
        ("layer_slow", {"exposed_ms": 144.0}, False),
        ("layer_slow", {"exposed_ms": 30.0, "predicted_ms": 30.0}, False),
        ("layer_fast", {"layer_ms": 9.0}, False),
        ("request_slow", {"predicted_ms": 700.0}, False),
    ],
)
def test_overlap_is_met_within_its_slack_only(row, changes, met):
    changed = exposure(*row.split("_"), **changes)
    assert judge_overlap(overlap_rows(**{row: changed})).met is met


def test_bytes_in_flight_are_counted_at_every_event():
    overlapping = handoff([0, 10, 20], 5, [15, 30, 40])
    assert peak_in_flight(overlapping) == (2048, 2)
    assert peak_in_flight(handoff([0, 10, 20], 5, [10, 20, 30])) == (1024, 1)


def window(num_chunks: int, **changes: float) -> Window:
    row = Window(
        num_chunks=num_chunks,
        capacity_nbytes=1024 * num_chunks,
        peak_nbytes=1024 * num_chunks,
        peak_ledger_nbytes=1024 * num_chunks,
        peak_chunks=num_chunks,
        n=3,
        moved_chunks=120,
        makespan_ms=250.0 if num_chunks > 1 else 350.0,
        link_ms=240.0,
    )
    return msgspec.structs.replace(row, **changes)


@pytest.mark.parametrize(
    ("wide", "one", "met"),
    [
        ({}, {}, True),
        ({"peak_nbytes": 3073}, {}, False),
        ({"peak_chunks": 2}, {}, False),
        ({}, {"peak_ledger_nbytes": 1025}, False),
        ({}, {"peak_chunks": 2}, False),
        ({}, {"makespan_ms": 249.0}, False),
    ],
)
def test_a_window_is_met_when_it_bounds_and_serialises(wide, one, met):
    assert judge_credit(window(3, **wide), window(1, **one)).met is met


def test_a_bill_is_exact_to_the_byte():
    logical, padding = 7 * 256, 256
    exact = handoff([0], 1, [2], logical=logical, padding=padding, framing=32, duplicate=0)
    exact = msgspec.structs.replace(exact, moved=(line("moved", 0, 1, nbytes=2048),))
    assert bill_of(exact, 7, 7, LAYOUT).is_exact
    assert not bill_of(exact, 7, 6, LAYOUT).is_exact
    short = msgspec.structs.replace(exact, moved=(line("moved", 0, 1, nbytes=2047),))
    assert not bill_of(short, 7, 7, LAYOUT).is_exact
    twice = {**exact.ledger, "handoff_duplicate_bytes": 1}
    assert not bill_of(msgspec.structs.replace(exact, ledger=twice), 7, 7, LAYOUT).is_exact


def test_awkward_lengths_are_edges_and_their_neighbours():
    lengths = awkward_lengths(16, 512, 520)
    assert lengths == (1, 2, 15, 16, 17, 111, 112, 113, 511, 512, 513)
    assert awkward_lengths(16, 512, 2000)[-1] == 1027


def arms(cpu_share: float = 1.0, **ttft_ms: float) -> dict[str, Arm]:
    default = {"alone": 100.0, "equal": 60.0, "searched": 55.0, "dense": 58.0, "triangular": 70.0}
    times = {**default, **ttft_ms}
    return {
        name: Arm(name=name, rows_first=1024, ttft_ms=ms, waited_ms=0, cpu_share=cpu_share, n=4)
        for name, ms in times.items()
    }


@pytest.mark.parametrize(
    ("changes", "num_truths", "met"),
    [
        ({}, 1, True),
        ({"searched": 60.0}, 1, True),
        ({"searched": 61.0}, 1, False),
        ({}, 2, False),
        ({"cpu_share": 0.5}, 1, None),
        ({"cpu_share": 0.5}, 2, False),
    ],
)
def test_runahead_is_met_when_no_slower_undisturbed_and_always_the_same(changes, num_truths, met):
    effect = judge_runahead(2048, arms(**changes), {1024: [60.0], 1152: [55.0]}, num_truths, 40)
    assert effect.met is met


def test_a_layer_that_never_comes_ends_the_wait():
    handle = os.eventfd(0, os.EFD_SEMAPHORE)
    try:
        relay = Relay(handle, timeout_s=0.05)
        relay.tell(0)
        relay.wait(0)
        with pytest.raises(BatonError, match="layer 1 of the other"):
            relay.wait(1)
    finally:
        os.close(handle)


def comparison(*, same: bool, exact: bool = True) -> Outcome:
    found = () if same else (Difference(aspect=Aspect.KV, text="K/V digest is b instead of a"),)
    record = Record(case="length-1", label="0.0", tokens=(1, 2), kv_digest="a")
    verdict = Verdict(case="length-1", label="0.0", differences=found, candidate=record)
    one = Comparison(arm="default", exact=exact, verdicts=(verdict,), handoffs=1)
    return Outcome(
        version="0", model="tiny", config_digest="c", deterministic=exact, comparisons=(one,)
    )


@pytest.mark.parametrize(
    ("outcome", "met"),
    [
        (comparison(same=True), True),
        (comparison(same=False), False),
        (comparison(same=True, exact=False), False),
    ],
)
def test_one_difference_or_no_promise_is_not_exact(outcome, met):
    assert judge_exactness(outcome).met is met
