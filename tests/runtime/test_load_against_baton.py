"""The client against the real gateway in front of a real prefill and a real decode worker."""

import pytest
from real_deployment import serving

from baton.bench.load import Endpoint, LoadOptions, Target, inspect_target, run_load
from baton.goodput.record import Outcome
from baton.workload.arrivals import poisson, with_arrivals
from baton.workload.distribution import Fixed
from baton.workload.synthetic import synthesize


@pytest.mark.slow
async def test_both_endpoints_of_a_real_deployment_are_measured():
    drawn = synthesize(20, Fixed(length=60), Fixed(length=8), seed=1)
    workload = with_arrivals(drawn, poisson(20, 20.0, 1))
    async with serving("cluster.prefill=1", "cluster.decode=1") as served:
        url = "http://{}:{}".format(*served.address)
        for endpoint in Endpoint:
            target = Target(base_url=url, endpoint=endpoint)
            found = await inspect_target(target)
            assert found.model == "tiny" and found.max_model_len
            assert bool(found.vocab_size) == (endpoint is Endpoint.COMPLETIONS)
            records = await run_load(target, workload, LoadOptions(abilities=found))
            assert [one.outcome for one in records] == [Outcome.COMPLETED] * 20
            assert {one.num_output_tokens for one in records} == {8}
            assert {one.mode for one in records} == {"disaggregated"}
            mean = sum(one.num_prompt_tokens for one in records) / 20
            assert mean == pytest.approx(60, abs=0 if found.vocab_size else 8)
        assert await served.until_idle(10.0) == []
