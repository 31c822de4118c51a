"""Fleets and questions for the tests of route policies."""

from typing import Any

from hypothesis import strategies as st

from baton.core.ids import Role, Schedule
from baton.core.snapshot import Rates
from baton.policy.routing.load import WorkerLoad
from baton.policy.routing.question import RouteQuestion


def worker(worker_id: str, role: Role = Role.PREFILL, **fields: Any) -> WorkerLoad:
    """A worker with room; rates may stand among the fields."""
    rates = {n: fields.pop(n) for n in fields.keys() & set(Rates.__struct_fields__)}
    given = {"pending_tokens": 0, "active_requests": 0, "headroom_blocks": 1000, **fields}
    return WorkerLoad(worker_id=worker_id, role=role, rates=Rates(**rates), **given)


def question(**fields: Any) -> RouteQuestion:
    """100 tokens in blocks of 10; 1 byte for each token."""
    given = {
        "draw": "r/1",
        "num_tokens": 101,
        "num_blocks": 11,
        "block_size": 10,
        "bytes_per_token": 1,
        "may_fetch": True,
        **fields,
    }
    given.setdefault("memory_depths", given.get("depths", {}))
    return RouteQuestion(**given)


def _workers(roles: list[Role]) -> st.SearchStrategy[list[WorkerLoad]]:
    one = st.builds(
        worker,
        st.sampled_from("abcdefghijkl"),
        st.sampled_from(roles),
        pending_tokens=st.integers(0, 5),
        pending_us=st.sampled_from([0.0, 10.0, 500.0, 3000.0]),
        active_requests=st.integers(0, 5),
        running=st.integers(0, 3),
        headroom_blocks=st.sampled_from([5, 20, 40]),
        accepting=st.sampled_from([True, True, True, False]),
        prefill_us_per_token=st.sampled_from([0.0, 5.0, 10.0]),
        prefill_us_per_pair=st.sampled_from([0.0, 0.1]),
        decode_step_us=st.sampled_from([0.0, 100.0, 300.0]),
        decode_us_per_sequence=st.sampled_from([0.0, 50.0]),
        tier_bytes_per_us=st.sampled_from([0.0, 0.5]),
    )
    return st.lists(one, unique_by=lambda w: w.worker_id, max_size=8)


fleets = st.one_of(
    _workers([Role.PREFILL, Role.DECODE]), _workers([Role.MIXED]), _workers(list(Role))
)


@st.composite
def questions(draw: st.DrawFn) -> RouteQuestion:
    """Any request over owners a to l; what is in memory is at most what is held at all."""
    depths = draw(st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(1, 12), max_size=5))
    memory = {o: m for o, d in depths.items() if (m := draw(st.integers(0, d)))}
    return question(
        draw=draw(st.text(max_size=3)),
        depths=depths,
        memory_depths=memory,
        num_layers=draw(st.sampled_from([1, 2, 8])),
        schedule=draw(st.sampled_from(list(Schedule))),
        bytes_per_us=draw(st.sampled_from([0.0, 0.05, 0.2, 1.0])),
        overhead_us=draw(st.sampled_from([0.0, 7.0])),
        num_output_tokens=draw(st.sampled_from([0, 1, 30])),
        ttft_slo_us=draw(st.sampled_from([0, 0, 400, 2000])),
        tpot_slo_us=draw(st.sampled_from([0, 0, 150, 400])),
        balancing_threshold=draw(st.sampled_from([1.0, 2.0, 4.0])),
        avoid_prefill=frozenset(draw(st.sets(st.sampled_from("abc")))),
        may_fetch=draw(st.booleans()),
    )
