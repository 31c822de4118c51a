"""Virtual token counters: nobody starves, nobody saves up credit, and bursts wait."""

from collections import Counter, deque

from hypothesis import given
from hypothesis import strategies as st

from baton.policy.fairness import OUTPUT_WEIGHT, TenantCounters

MOST = 50
sizes = st.tuples(st.integers(1, MOST), st.integers(0, MOST // OUTPUT_WEIGHT))
COST = 2 * MOST
"""Most that one request can weigh."""


def serve(counters: TenantCounters, queues: dict[str, deque], ledger: Counter) -> str:
    """Route one request of whose turn it is, and charge all of it."""
    tenant = counters.next_tenant(t for t, queue in queues.items() for _ in queue)
    prompt, output = queues[tenant].popleft()
    counters.charge(tenant, prompt_tokens=prompt, output_tokens=output)
    ledger[tenant] += prompt + OUTPUT_WEIGHT * output
    return tenant


@given(st.lists(sizes, min_size=10, max_size=25), st.lists(sizes, min_size=10, max_size=25))
def test_tenants_that_both_wait_are_served_alike_however_their_requests_differ(mine, theirs):
    counters, ledger = TenantCounters(), Counter()
    queues = {"mine": deque(mine), "theirs": deque(theirs)}
    while all(queues.values()):
        serve(counters, queues, ledger)
        assert abs(ledger["mine"] - ledger["theirs"]) <= COST


@given(st.lists(sizes, max_size=40), st.lists(sizes, min_size=1, max_size=60), sizes)
def test_one_request_waits_for_a_bounded_service_of_somebody_elses_burst(before, burst, single):
    """However long the burst is, and however much the burster was served before."""
    counters, ledger = TenantCounters(), Counter()
    queues = {"burst": deque([*before, *burst]), "single": deque()}
    for _ in before:
        serve(counters, queues, ledger)
    queues["single"].append(single)
    ledger.clear()
    while queues["single"] and queues["burst"]:
        serve(counters, queues, ledger)
    assert ledger["burst"] <= COST


@given(st.lists(sizes, min_size=12, max_size=25), st.lists(sizes, min_size=12, max_size=25))
def test_who_was_idle_has_no_credit(early, late):
    """A tenant that comes back does not shut the other one out until it has caught up."""
    counters, ledger = TenantCounters(), Counter()
    queues = {"busy": deque([*early, *late]), "idle": deque()}
    for _ in early:
        serve(counters, queues, ledger)
    queues["idle"].extend(late)
    ledger.clear()
    while all(queues.values()):
        serve(counters, queues, ledger)
        assert ledger["idle"] - ledger["busy"] <= 2 * COST


def test_the_first_to_wait_is_first_among_equals_and_an_empty_line_keeps_its_floor():
    counters = TenantCounters()
    assert counters.next_tenant(["b", "a", "b"]) == "b"
    counters.charge("b", prompt_tokens=10)
    assert counters.next_tenant(["b", "a"]) == "a"
    counters.charge("a", output_tokens=100)
    assert counters.next_tenant(["a"]) == "a"
    assert counters.next_tenant(["new", "a"]) == "new"
    assert counters.served("new") == counters.served("a") == 200


def test_the_table_is_bounded_and_nobody_who_counts_is_forgotten():
    counters = TenantCounters()
    for number in range(10_000):
        counters.next_tenant([f"t{number}", "steady"])
        counters.charge(f"t{number}", prompt_tokens=5)
        counters.charge("steady", prompt_tokens=1)
    assert len(counters._served) <= 5000
    assert counters.served("steady") >= 10_000
