"""The live history keeps up with a thousand requests a second, for minutes, and is bounded."""

import pytest

from baton.bench.live_history import LIMIT_CORE, LIMIT_FEED_NBYTES, LIMIT_GROWTH_MIB, fold
from baton.config import load_config

TARGETS = ["router.ttft_slo_ms=100", "router.tpot_slo_ms=20"]


def test_what_is_kept_is_what_was_asked_and_nothing_is_lost():
    config = load_config(None, [*TARGETS, "telemetry.history_requests=500"])
    found = fold(config, rate=200, minutes=0.1)
    assert found.num_requests == 1200 and found.num_kept == 500
    assert found.num_dropped == 0 and found.most_open < 1000
    assert 1000 < found.feed_nbytes <= LIMIT_FEED_NBYTES
    assert found.num_events > 20 * (found.num_requests - 200), "those at the end have not ended"


@pytest.mark.slow
@pytest.mark.parametrize("answer_s", [0.4, 10.0])
def test_a_thousand_requests_a_second_for_a_minute_and_a_half(answer_s):
    found = fold(load_config(None, TARGETS), rate=1000, minutes=1.5, answer_s=answer_s)
    assert found.num_requests == 90_000 and found.num_kept == 1000 and found.num_dropped == 0
    assert found.core_share <= LIMIT_CORE and found.feed_nbytes <= LIMIT_FEED_NBYTES
    assert found.growth_mib <= LIMIT_GROWTH_MIB
