"""Leases: earliest first, renewal moves the end, and never to an earlier time."""

from hypothesis import given
from hypothesis import strategies as st

from baton.protocol.lease import LeaseTable


def test_leases_expire_earliest_first_and_once():
    leases: LeaseTable[str] = LeaseTable()
    for key, at in (("c", 30), ("a", 10), ("b", 20)):
        leases.set(key, at)
    assert leases.next_expiry() == 10
    assert leases.pop_expired(9) == []
    assert leases.pop_expired(20) == ["a", "b"]
    assert leases.pop_expired(20) == []
    assert leases.pop_expired(99) == ["c"]
    assert leases.next_expiry() is None and len(leases) == 0


def test_a_lease_ends_exactly_at_its_time():
    leases: LeaseTable[str] = LeaseTable()
    leases.set("a", 10)
    assert "a" in leases
    assert leases.pop_expired(10) == ["a"]
    assert "a" not in leases


def test_equal_ends_leave_in_the_order_they_were_set():
    leases: LeaseTable[str] = LeaseTable()
    for key in "xab":
        leases.set(key, 5)
    assert leases.pop_expired(5) == ["x", "a", "b"]


def test_a_renewal_moves_the_end():
    leases: LeaseTable[str] = LeaseTable()
    leases.set("a", 10)
    leases.set("a", 30)
    assert leases.next_expiry() == 30
    assert leases.pop_expired(29) == []
    assert leases.pop_expired(30) == ["a"]


def test_a_renewed_lease_outlives_its_first_end():
    leases: LeaseTable[str] = LeaseTable()
    leases.set("a", 10)
    leases.set("a", 30)
    assert leases.pop_expired(29) == []
    assert "a" in leases


def test_a_renewal_never_shortens():
    leases: LeaseTable[str] = LeaseTable()
    leases.set("a", 30)
    leases.set("a", 10)
    assert leases.next_expiry() == 30
    assert leases.pop_expired(10) == []


def test_a_dropped_lease_never_expires_but_may_start_again():
    leases: LeaseTable[str] = LeaseTable()
    leases.set("a", 10)
    leases.drop("a")
    leases.drop("never there")
    assert leases.pop_expired(10) == []
    leases.set("a", 5)
    assert leases.next_expiry() == 5
    assert leases.pop_expired(5) == ["a"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["set", "drop", "pop"]), st.sampled_from("abc"), st.integers(0, 50)
        ),
        max_size=60,
    )
)
def test_any_walk_agrees_with_a_plain_dictionary(steps):
    leases: LeaseTable[str] = LeaseTable()
    model: dict[str, int] = {}
    for action, key, time in steps:
        if action == "set":
            leases.set(key, time)
            model[key] = max(model.get(key, -1), time)
        elif action == "drop":
            leases.drop(key)
            model.pop(key, None)
        else:
            expired = leases.pop_expired(time)
            due = {k for k, at in model.items() if at <= time}
            assert set(expired) == due and len(expired) == len(due)
            assert [model[k] for k in expired] == sorted(model[k] for k in expired)
            model = {k: at for k, at in model.items() if at > time}
        assert len(leases) == len(model)
        assert all(k in leases for k in model)
        if action == "drop":  # not always: asking also cleans the heap
            assert leases.next_expiry() == min(model.values(), default=None)
