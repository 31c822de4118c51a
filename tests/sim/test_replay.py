"""Replays by hand: what a client sees is the profile's arithmetic plus the delays around it."""

import math

import pytest
from tests.policy.profiles import make_profile

from baton.config import CacheConfig, RouterConfig, TransferConfig, WorkerConfig, load_config
from baton.core.cache import Milestone
from baton.core.ids import Role
from baton.errors import ConfigError
from baton.goodput.record import Outcome, RequestRecord
from baton.policy.phase_cost import PrefillRows
from baton.sim.replay import Delays, ReplaySetup, replay, replay_counted
from baton.workload.request import Workload, WorkloadRequest

PROFILE = make_profile()
DELAYS = Delays(control_us=150, gateway_in_us=500, gateway_out_us=300)
EDGE_US = DELAYS.gateway_in_us + DELAYS.gateway_out_us
SPLIT, ONE, TWO = (Role.PREFILL, Role.DECODE), (Role.MIXED,), (Role.MIXED, Role.MIXED)
OVERHEAD_US = PROFILE.overhead.us(1)


def wanted(at_us: int, prompt: int, output: int, *hash_ids: int) -> WorkloadRequest:
    return WorkloadRequest(
        arrival_us=at_us,
        num_prompt_tokens=prompt,
        num_output_tokens=output,
        hash_ids=hash_ids,
    )


def workload(*requests: WorkloadRequest) -> Workload:
    return Workload(name="written", source="a test", requests=requests, tokens_per_hash=64)


def run(roles: tuple[Role, ...], *requests: WorkloadRequest, **setup) -> list[RequestRecord]:
    return replay(workload(*requests), ReplaySetup(roles=roles, delays=DELAYS, **setup), PROFILE)


def prefill_us(num_rows: int, num_visible: int = 0) -> float:
    return PROFILE.step_us([PrefillRows(num_rows=num_rows, num_visible=num_visible)], [])


def decode_gap_us(visible: int) -> int:
    return math.ceil(PROFILE.step_us([], [visible])) + round(OVERHEAD_US)


def test_a_lone_colocated_request_takes_what_the_profile_says():
    (record,) = run(ONE, wanted(7_000, 100, 4))
    # Reserve, Reserved and Prefill before the step; the tokens' way to the router after it.
    ttft_us = EDGE_US + 4 * DELAYS.control_us + math.ceil(prefill_us(100)) + round(OVERHEAD_US)
    assert record.ttft_us == ttft_us
    assert record.scheduled_us == record.sent_us == 7_000
    assert record.gaps_us == tuple(decode_gap_us(101 + i) for i in range(3))
    assert record.tpot_us == pytest.approx(sum(record.gaps_us) / 3)
    # The last tokens and the end leave the worker together.
    assert record.end_us == record.token_times_us[-1]
    assert (record.outcome, record.mode) == (Outcome.COMPLETED, "colocated")
    assert (record.num_prompt_tokens, record.num_output_tokens) == (100, 4)


def test_a_lone_split_request_pays_for_the_seal_but_hides_a_layer_wise_transfer():
    (record,) = run(SPLIT, wanted(0, 100, 4), transfer=TransferConfig(schedule="layer"))
    # The last layer's copy and read-back fit into the hop from the engine to the node.
    layer_nbytes = 7 * 16 * PROFILE.subject.shape.layout.row_nbytes
    last_us = PROFILE.transfer.copy_us(layer_nbytes) + PROFILE.transfer.digest_us(layer_nbytes)
    assert last_us < OVERHEAD_US
    ttft_us = EDGE_US + 5 * DELAYS.control_us + math.ceil(prefill_us(100)) + round(OVERHEAD_US)
    assert record.ttft_us == ttft_us
    assert record.gaps_us == tuple(decode_gap_us(101 + i) for i in range(3))
    assert record.mode == "disaggregated"


def test_a_request_wise_transfer_is_exposed_as_a_whole():
    transfer = TransferConfig(schedule="request", chunk_nbytes=8 << 20)
    (record,) = run(SPLIT, wanted(0, 100, 1), transfer=transfer)
    nbytes = 7 * PROFILE.subject.shape.layout.bytes_per_block
    moved_us = round(PROFILE.transfer.copy_us(nbytes)) + round(PROFILE.transfer.digest_us(nbytes))
    # The seal leaves when the copy is over and travels during the read-back.
    step_us = math.ceil(prefill_us(100)) + round(OVERHEAD_US)
    assert record.ttft_us == EDGE_US + 4 * DELAYS.control_us + step_us + moved_us
    unchecked = TransferConfig(schedule="request", chunk_nbytes=8 << 20, checksum=False)
    (faster,) = run(SPLIT, wanted(0, 100, 1), transfer=unchecked)
    # Nothing is read back, so the seal is what the destination waits for.
    copy_us = round(PROFILE.transfer.copy_us(nbytes))
    assert faster.ttft_us == EDGE_US + 5 * DELAYS.control_us + step_us + copy_us


def test_the_second_of_two_waits_for_the_first():
    worker = WorkerConfig(max_batch_tokens=128)
    first, second = run(ONE, wanted(0, 128, 1), wanted(0, 128, 1), worker=worker)
    step_us = math.ceil(prefill_us(128)) + round(OVERHEAD_US)
    assert first.ttft_us == EDGE_US + 4 * DELAYS.control_us + step_us
    assert second.ttft_us == first.ttft_us + step_us


def test_a_prompt_beside_a_stream_stretches_its_gap_colocated_but_not_split():
    stream, prompt = wanted(0, 64, 20), wanted(500_000, 256, 1)
    colocated, _ = run(ONE, stream, prompt)
    split, _ = run(SPLIT, stream, prompt, shares_memory=False)
    alone_us = decode_gap_us(84)
    mixed_us = PROFILE.served_step_us([PrefillRows(num_rows=256)], [70])
    assert max(split.gaps_us) <= alone_us
    assert max(colocated.gaps_us) == pytest.approx(mixed_us, rel=0.01)
    assert max(colocated.gaps_us) > 10 * alone_us


def test_a_shared_prefix_is_computed_once():
    first, second = run(ONE, wanted(0, 192, 1, 1, 2), wanted(3_000_000, 192, 1, 1, 2))
    assert first.ttft_us - second.ttft_us == pytest.approx(
        prefill_us(192) - prefill_us(64, 128), abs=2
    )
    cold = run(
        ONE, wanted(0, 192, 1, 1, 2), wanted(3_000_000, 192, 1, 1, 2),
        cache=CacheConfig(milestone=Milestone.NONE),
    )  # fmt: skip
    assert cold[0].ttft_us == cold[1].ttft_us == first.ttft_us


def test_two_busy_neighbours_slow_each_other_by_the_measured_factor():
    pair = (wanted(0, 256, 1), wanted(0, 256, 1))
    beside = run(TWO, *pair)
    apart = run(TWO, *pair, shares_memory=False)
    factor = PROFILE.contention.prefill_beside_decode
    for slow, quick in zip(beside, apart, strict=True):
        assert slow.ttft_us - quick.ttft_us == pytest.approx((factor - 1) * prefill_us(256), abs=2)


def test_a_neighbour_slows_only_what_runs_beside_it():
    long, short = run(TWO, wanted(0, 512, 1), wanted(0, 64, 1))
    alone = run(TWO, wanted(0, 512, 1), wanted(0, 64, 1), shares_memory=False)
    factor = PROFILE.contention.prefill_beside_decode
    # While the short step runs, both are slowed; then the long one goes on at its own speed.
    overlap_us = factor * prefill_us(64)
    assert short.ttft_us - alone[1].ttft_us == pytest.approx((factor - 1) * prefill_us(64), abs=2)
    assert long.ttft_us - alone[0].ttft_us == pytest.approx(overlap_us - overlap_us / factor, abs=2)


def test_a_stream_is_slower_while_the_prefill_worker_computes():
    stream, prompt = wanted(0, 64, 40), wanted(500_000, 512, 1)
    slowed, _ = run(SPLIT, stream, prompt)
    quiet, _ = run(SPLIT, stream, prompt, shares_memory=False)
    factor = PROFILE.contention.decode_beside_prefill
    step_us = decode_gap_us(90) - OVERHEAD_US
    assert max(slowed.gaps_us) - max(quiet.gaps_us) == pytest.approx(
        (factor - 1) * step_us, rel=0.05
    )
    assert sum(gap > 1.15 * decode_gap_us(90) for gap in slowed.gaps_us) > 10
    assert slowed.gaps_us[:3] == quiet.gaps_us[:3]


def test_what_the_gateway_or_the_router_refuses_fails_with_its_reason():
    records = run(
        SPLIT,
        wanted(0, 300, 10),
        wanted(0, 10, 2),
        wanted(10, 200, 10),
        wanted(20, 150, 10),
        max_model_len=256,
        num_blocks=12,
        router=RouterConfig(max_pending_tokens=15),
    )
    assert [record.outcome for record in records] == [
        Outcome.FAILED, Outcome.COMPLETED, Outcome.FAILED, Outcome.FAILED,
    ]  # fmt: skip
    long, _, large, queued = records
    assert long.error.startswith("context_length_exceeded") and long.end_us == 500
    assert large.error.startswith("too_large") and large.token_times_us == ()
    assert queued.error.startswith("queue_full") and queued.num_output_tokens == 0
    assert large.end_us == 10 + EDGE_US
    assert large.ttft_us is None


def test_equal_arguments_give_equal_records():
    requests = [wanted(at * 37_000, 40 + 61 * at % 500, 3 + at % 9, at % 4) for at in range(40)]
    setup = ReplaySetup(roles=SPLIT, worker=WorkerConfig(max_batch_tokens=128), seed=5)
    once = replay_counted(workload(*requests), setup, PROFILE)
    again = replay_counted(workload(*requests), setup, PROFILE)
    assert once == again
    records, counts = once
    assert all(record.outcome is Outcome.COMPLETED for record in records)
    assert counts.counters["finished"] == 40 and counts.moved_nbytes > 0
    assert [r.num_output_tokens for r in records] == [r.num_output_tokens for r in requests]
    for record in records:
        assert len(record.token_times_us) == record.num_output_tokens
        assert list(record.token_times_us) == sorted(record.token_times_us)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"roles": ()}, "setup.roles"),
        ({"roles": (Role.PREFILL,)}, "setup.roles"),
        ({"roles": (Role.MIXED, Role.DECODE)}, "setup.roles"),
        ({"num_blocks": -1}, "setup.num_blocks"),
        ({"vocab_size": 1}, "setup.vocab_size"),
        ({"delays": Delays(control_us=-1)}, "setup.delays.control_us"),
    ],
)
def test_a_setup_that_cannot_serve_is_refused(fields, named):
    with pytest.raises(ConfigError, match=named.replace(".", r"\.")):
        ReplaySetup(**fields)


def test_a_pool_too_small_for_two_blocks_is_refused():
    setup = ReplaySetup(roles=ONE, worker=WorkerConfig(kv_nbytes=1000))
    with pytest.raises(ConfigError, match=r"worker\.kv_nbytes 1000"):
        replay(workload(wanted(0, 10, 1)), setup, PROFILE)
    assert replay(workload(), ReplaySetup(), PROFILE) == []


def test_decode_workers_have_the_pool_that_their_own_key_buys():
    config = load_config(None, ["worker.kv_nbytes=100000000", "cluster.decode_kv_nbytes=200000000"])
    setup = ReplaySetup.from_config(config, max_model_len=8192)
    profile = make_profile()
    prefill, decode = (setup.pool_blocks(profile, role) for role in (Role.PREFILL, Role.DECODE))
    assert decode // 2 == prefill > 2
    small = load_config(None, ["cluster.decode_kv_nbytes=1000"])
    with pytest.raises(ConfigError, match=r"cluster\.decode_kv_nbytes 1000 holds 0 blocks"):
        ReplaySetup.from_config(small, max_model_len=8192).pool_blocks(profile, Role.DECODE)
