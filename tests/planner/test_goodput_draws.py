"""Requests drawn from a trace: equal for equal seeds, and what stays of the trace."""

import numpy as np
import pytest

from baton.errors import ConfigError
from baton.planner.goodput.draws import Arrivals, Draws, Lengths, draw, resampling
from baton.sim.fast.workload import FastWorkload


def trace(num=200, has_ids=True):
    lengths = np.arange(1, num + 1)
    ids = np.arange(2 * num) if has_ids else np.zeros(0)
    offsets = np.arange(0, 2 * num + 1, 2) if has_ids else np.zeros(num + 1)
    return FastWorkload(
        arrival_us=np.cumsum(np.random.default_rng(5).exponential(2e5, num)),
        num_prompt=lengths,
        num_output=lengths * 1000,
        hash_offsets=offsets.astype(np.int64),
        hash_ids=ids.astype(np.int64),
        tokens_per_hash=16,
    )


def gaps(workload):
    return np.diff(workload.arrival_us)


def test_pairs_stay_together_and_independent_lengths_do_not():
    paired = draw(trace(), 5000, 0, Draws())
    assert (paired.num_output == 1000 * paired.num_prompt).all()
    loose = draw(trace(), 5000, 0, Draws(lengths=Lengths.INDEPENDENT))
    assert abs(np.corrcoef(loose.num_prompt, loose.num_output)[0, 1]) < 0.05
    assert len(paired.hash_ids) == 0 and len(paired.hash_offsets) == 5001


def test_a_window_of_the_trace_keeps_its_order_and_its_prefixes():
    window = draw(trace(), 50, 3, Draws(lengths=Lengths.TRACE))
    assert (np.diff(window.num_prompt) == 1).all()
    first = 2 * (window.num_prompt[0] - 1)
    assert (window.hash_ids == np.arange(first, first + 100)).all()
    assert window.hash_offsets[0] == 0 and window.hash_offsets[-1] == len(window.hash_ids)


def test_own_arrivals_are_stretched_to_one_a_second():
    own = Draws(arrivals=Arrivals.TRACE, lengths=Lengths.TRACE)
    drawn = draw(trace(), 200, 0, own)
    ratio = gaps(drawn) / gaps(trace())
    assert np.allclose(ratio, ratio[0])
    assert gaps(drawn).mean() == pytest.approx(1e6)
    assert gaps(drawn.at_rate(4.0)).mean() == pytest.approx(2.5e5)


@pytest.mark.parametrize(("cv", "arrivals"), [(1.0, "poisson"), (0.5, "gamma"), (2.0, "gamma")])
def test_gaps_have_their_variation_and_exactly_their_rate(cv, arrivals):
    drawn = draw(trace(), 20_000, 1, Draws(arrivals=Arrivals(arrivals), cv=cv))
    assert gaps(drawn).mean() == pytest.approx(1e6)
    assert gaps(drawn).std() / 1e6 == pytest.approx(cv, rel=0.05)


def test_equal_seeds_draw_equal_requests_and_lengths_do_not_change_arrivals():
    one, same = draw(trace(), 100, 7, Draws()), draw(trace(), 100, 7, Draws())
    assert (one.arrival_us == same.arrival_us).all() and (one.num_prompt == same.num_prompt).all()
    assert (draw(trace(), 100, 8, Draws()).arrival_us != one.arrival_us).any()
    other = draw(trace(), 100, 7, Draws(lengths=Lengths.INDEPENDENT))
    assert (other.arrival_us == one.arrival_us).all()


def test_traces_that_are_too_short_or_have_no_gaps_are_refused_with_numbers():
    with pytest.raises(ConfigError, match="300 requests are needed, the trace has 200"):
        draw(trace(), 300, 0, Draws(lengths=Lengths.TRACE))
    with pytest.raises(ConfigError, match="own sequence"):
        Draws(arrivals=Arrivals.TRACE)
    with pytest.raises(ConfigError, match="only gamma"):
        Draws(cv=2.0)
    at_once = FastWorkload(
        arrival_us=np.zeros(3),
        num_prompt=np.ones(3, np.int64),
        num_output=np.ones(3, np.int64),
        hash_offsets=np.zeros(4, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )
    with pytest.raises(ConfigError, match="all at once"):
        draw(at_once, 3, 0, Draws(arrivals=Arrivals.TRACE, lengths=Lengths.TRACE))


def test_a_trace_with_prefixes_keeps_its_sequence_by_default():
    assert resampling(trace()).lengths is Lengths.TRACE
    assert resampling(trace(has_ids=False)).lengths is Lengths.PAIRS
