"""Latency and throughput figures under vLLM's names."""

import numpy as np
import pytest

from baton.errors import ConfigError
from baton.goodput.percentiles import latency_summary, throughput_summary
from baton.goodput.record import Outcome, RequestRecord
from tests.goodput.records import record


def test_names_and_values():
    records = [record(10 * n, n, num_tokens=5) for n in range(1, 101)]
    summary = latency_summary(records)
    assert set(summary) == {
        f"{figure}_{name}_ms"
        for figure in ("mean", "median", "std", "p50", "p90", "p99")
        for name in ("ttft", "tpot", "itl", "e2el")
    }
    assert summary["mean_ttft_ms"] == pytest.approx(505)
    assert summary["median_ttft_ms"] == summary["p50_ttft_ms"] == pytest.approx(505)
    assert summary["p90_ttft_ms"] == pytest.approx(901)
    assert summary["p99_tpot_ms"] == pytest.approx(99.01)
    assert summary["std_tpot_ms"] == pytest.approx(np.std(np.arange(1, 101)))
    assert summary["mean_itl_ms"] == pytest.approx(50.5)
    assert summary["mean_e2el_ms"] == pytest.approx(505 + 4 * 50.5)


def test_tpot_is_what_vllm_computes_from_the_end_to_end_latency():
    one = record(120, 17, num_tokens=9)
    e2el_ms, ttft_ms = (one.end_us - one.scheduled_us) / 1000, one.ttft_us / 1000
    assert latency_summary([one])["mean_tpot_ms"] == pytest.approx((e2el_ms - ttft_ms) / 8)


def test_a_chunk_of_several_tokens_is_one_gap_and_several_tokens():
    one = RequestRecord(
        request_id="r",
        scheduled_us=1000,
        sent_us=1500,
        token_times_us=(11_000, 15_000, 31_000),
        end_us=32_000,
        num_prompt_tokens=3,
        num_output_tokens=6,
        outcome=Outcome.COMPLETED,
    )
    summary = latency_summary([one])
    assert summary["mean_ttft_ms"] == 10
    assert summary["mean_tpot_ms"] == 4
    assert summary["mean_itl_ms"] == 10
    assert summary["mean_e2el_ms"] == 31


def test_requests_that_did_not_complete_and_single_tokens_do_not_count():
    odd = [
        record(9, outcome=Outcome.FAILED),
        record(9, outcome=Outcome.CANCELLED),
        record(30, 5, num_tokens=1),
    ]
    summary = latency_summary([record(10, 5), *odd])
    assert summary["mean_ttft_ms"] == 20
    assert summary["mean_tpot_ms"] == summary["mean_itl_ms"] == 5


def test_a_figure_without_observations_is_none_and_not_zero():
    assert set(latency_summary([]).values()) == {None}
    single = latency_summary([record(10, num_tokens=1)])
    assert single["mean_tpot_ms"] is None and single["mean_ttft_ms"] == 10


def test_other_percentiles_are_named_after_their_number():
    summary = latency_summary([record()], percentiles=(5, 99.9))
    assert "p5_ttft_ms" in summary and "p99.9_ttft_ms" in summary
    assert "p99_ttft_ms" not in summary
    with pytest.raises(ConfigError, match="percentile 101"):
        latency_summary([record()], percentiles=(101,))


def test_throughput():
    records = [record(num_tokens=10), record(num_tokens=30), record(outcome=Outcome.FAILED)]
    assert throughput_summary(records, 2_000_000) == {
        "duration": 2.0,
        "completed": 2,
        "failed": 1,
        "cancelled": 0,
        "total_input_tokens": 14,
        "total_output_tokens": 40,
        "request_throughput": 1.0,
        "output_throughput": 20.0,
        "total_token_throughput": 27.0,
    }
    with pytest.raises(ConfigError, match="duration_us = 0"):
        throughput_summary(records, 0)
