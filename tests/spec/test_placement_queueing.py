"""The queueing forms of specification 0x08B against their table."""

import pytest

from baton.errors import ConfigError
from baton.goodput.queueing import (
    crossover_load,
    inter_op_ttft_s,
    intra_op_ttft_s,
    mean_wait_s,
    single_ttft_s,
    variation,
)

SERVICE_S = 0.1


@pytest.mark.parametrize(
    ("rate", "single", "inter", "intra"),
    [
        (1.0, 0.105556, 0.101316, 0.069048),
        (5.0, 0.150000, 0.108333, 0.083333),
        (9.0, 0.550000, 0.120455, 0.116667),
        (9.5, 1.050000, 0.122619, 0.124242),
    ],
)
def test_mean_ttft_of_three_layouts(rate, single, inter, intra):
    assert single_ttft_s(rate, SERVICE_S) == pytest.approx(single, abs=5e-7)
    assert inter_op_ttft_s(rate, SERVICE_S) == pytest.approx(inter, abs=5e-7)
    assert intra_op_ttft_s(rate, SERVICE_S, 1.5) == pytest.approx(intra, abs=5e-7)


@pytest.mark.parametrize(
    ("speedup", "load"),
    [(1.2, 0.4338), (1.4, 0.7761), (1.5, 0.9361), (1.6, 1.0949), (1.8, 1.4291), (1.9, 1.6257)],
)
def test_the_load_at_which_pipeline_stages_overtake_tensor_ranks(speedup, load):
    assert crossover_load(speedup) == pytest.approx(load, abs=5e-5)
    for factor, tensor_wins in ((0.99, True), (1.01, False)):
        rate = factor * load / SERVICE_S
        tensor = intra_op_ttft_s(rate, SERVICE_S, speedup)
        assert (tensor < inter_op_ttft_s(rate, SERVICE_S)) == tensor_wins


def test_no_form_answers_outside_its_domain():
    for rate in (10.0, 12.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match=r"rate_per_s = .* below 10"):
            single_ttft_s(rate, SERVICE_S)
    assert inter_op_ttft_s(19.9, SERVICE_S) > 0 and intra_op_ttft_s(14.9, SERVICE_S, 1.5) > 0
    with pytest.raises(ConfigError, match="below 20"):
        inter_op_ttft_s(20.0, SERVICE_S)
    with pytest.raises(ConfigError, match="below 15"):
        intra_op_ttft_s(15.0, SERVICE_S, 1.5)
    for speedup in (1.0, 2.0, 0.5):
        with pytest.raises(ConfigError, match="speedup"):
            crossover_load(speedup)


def test_waits_grow_with_the_second_moment_of_service():
    even = mean_wait_s(5.0, SERVICE_S, SERVICE_S**2)
    assert single_ttft_s(5.0, SERVICE_S) == pytest.approx(SERVICE_S + even)
    # Exponential service: E[S^2] = 2 E[S]^2, so twice the wait of M/D/1.
    assert mean_wait_s(5.0, SERVICE_S, 2 * SERVICE_S**2) == pytest.approx(2 * even)
    assert variation(SERVICE_S, 2 * SERVICE_S**2) == pytest.approx(2.0)
    with pytest.raises(ConfigError, match="square of the mean"):
        mean_wait_s(5.0, SERVICE_S, 0.5 * SERVICE_S**2)
