"""The benchmark runs and its figures hang together."""

import pytest

from baton.bench.gateway import measure_gateway


@pytest.mark.slow
def test_measure_gateway() -> None:
    found = measure_gateway(seconds=0.3, streams=4, rounds=1)
    assert found["tokens_per_s"] > 1000
    assert 0 < found["paced_tokens_per_s"] < found["tokens_per_s"]
    assert 0 < found["latency_median_us"] <= found["latency_p99_us"]
    assert 0 < found["limit_latency_median_us"] <= found["limit_latency_p99_us"]
