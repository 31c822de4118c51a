"""ChangeLog: what a taker is told is the difference between then and now."""

from hypothesis import given
from hypothesis import strategies as st

from baton.cache.changes import ChangeLog
from baton.core.cache import CacheChange, Tier

NAMES = [bytes([n]) for n in range(4)]
STEPS = st.lists(
    st.one_of(st.tuples(st.sampled_from(list(Tier)), st.sampled_from(NAMES)), st.just("take"))
)


def test_nothing_is_noted_until_somebody_takes():
    log = ChangeLog()
    log.stored(Tier.MEMORY, b"a")
    assert log.take() == []


def test_changes_are_merged_per_tier_and_taken_once():
    log = ChangeLog()
    log.is_enabled = True
    log.stored(Tier.MEMORY, b"a")
    log.stored(Tier.DISK, b"x")
    log.stored(Tier.MEMORY, b"b")
    assert log.take() == [
        CacheChange(stored=True, tier=Tier.DISK, hashes=(b"x",)),
        CacheChange(stored=True, tier=Tier.MEMORY, hashes=(b"a", b"b")),
    ]
    assert log.take() == []


def test_what_came_and_went_is_not_told_unless_a_generation_lies_between():
    log = ChangeLog()
    log.is_enabled = True
    log.stored(Tier.MEMORY, b"a")
    log.removed(Tier.MEMORY, b"a")
    assert log.take() == []
    log.removed(Tier.MEMORY, b"a")
    log.seal()
    log.stored(Tier.MEMORY, b"a")
    assert [change.stored for change in log.take()] == [False, True]


@given(STEPS)
def test_a_taker_who_applies_the_changes_knows_what_is_held(steps):
    log = ChangeLog()
    log.is_enabled = True
    held: set[tuple[Tier, bytes]] = set()
    known: set[tuple[Tier, bytes]] = set()
    for step in [*steps, "take"]:
        if step == "take":
            for change in log.take():
                named = {(change.tier, name) for name in change.hashes}
                assert not named & known if change.stored else named <= known
                known = known | named if change.stored else known - named
            assert known == held
        elif step in held:
            held.remove(step)
            log.removed(*step)
        else:
            held.add(step)
            log.stored(*step)
