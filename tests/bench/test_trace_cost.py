"""What tracing costs is measured on real deployments, and told as a share of the throughput."""

import asyncio

import pytest

from baton.bench.steps import Case
from baton.bench.trace_cost import TraceCost, measure_trace_cost
from baton.config import load_config


def test_the_loss_is_that_of_throughput():
    case = Case(batch=16, context=128)
    found = TraceCost(case=case, on_ms=10.0, off_ms=8.0, ratio=1.25, rounds=1)
    assert found.lost == pytest.approx(0.2)


@pytest.mark.slow
def test_both_deployments_are_asked():
    config = load_config(None, ['model.name="tiny"'])
    found = asyncio.run(measure_trace_cost(config, Case(batch=2, context=32), rounds=1))
    assert found.rounds == 1
    assert min(found.on_ms, found.off_ms, found.ratio) > 0
