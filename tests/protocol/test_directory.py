"""Publication is a compare-and-swap on the generation: duplicate, stale and newer (0x06D, 0x10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.core.manifest import CacheEntry
from baton.protocol.directory import Directory, PublishOutcome

PUBLISHED, DUPLICATE, STALE = PublishOutcome


def entry(generation: int, request_id: str = "r1", **changes: object) -> CacheEntry:
    fields = {
        "request_id": request_id,
        "generation": generation,
        "transfer_id": f"{request_id}.{generation}",
        "reservation_id": generation,
        "block_ids": (generation,),
        "num_tokens": 4,
        "layout_digest": "x",
    }
    return CacheEntry(**{**fields, **changes})


def test_outcomes_are_named():
    assert [str(outcome) for outcome in PublishOutcome] == ["published", "duplicate", "stale"]


def test_the_first_publication_of_a_generation_wins():
    directory = Directory()
    assert directory.publish(entry(3)) is PUBLISHED
    assert directory.lookup("r1", 3) == entry(3)
    assert len(directory) == 1


def test_a_repeated_transfer_is_a_duplicate_and_replaces_nothing():
    directory = Directory()
    directory.publish(entry(3))
    assert directory.publish(entry(3, block_ids=(99,))) is DUPLICATE
    assert directory.lookup("r1", 3) == entry(3)


def test_the_same_generation_under_another_transfer_is_stale():
    directory = Directory()
    directory.publish(entry(3))
    assert directory.publish(entry(3, transfer_id="other")) is STALE
    assert directory.lookup("r1", 3) == entry(3)


def test_an_older_generation_never_replaces_a_newer_one():
    directory = Directory()
    directory.publish(entry(3))
    assert directory.publish(entry(2)) is STALE
    assert directory.lookup("r1", 2) is None
    assert directory.lookup("r1", 3) == entry(3)


def test_a_newer_generation_replaces_an_older_one():
    directory = Directory()
    directory.publish(entry(3))
    assert directory.publish(entry(4)) is PUBLISHED
    assert directory.lookup("r1", 3) is None
    assert directory.lookup("r1", 4) == entry(4)


def test_a_fenced_generation_cannot_enter_and_the_next_can():
    directory = Directory()
    directory.fence("r1", 4)
    assert directory.is_fenced("r1", 3) and not directory.is_fenced("r1", 4)
    assert directory.publish(entry(3)) is STALE
    assert directory.publish(entry(4)) is PUBLISHED


def test_a_fence_never_moves_back():
    directory = Directory()
    directory.fence("r1", 4)
    directory.fence("r1", 2)
    assert directory.is_fenced("r1", 3)


def test_an_ended_request_stays_fenced_against_its_own_late_completion():
    directory = Directory()
    directory.publish(entry(3))
    directory.unpublish("r1", 3)
    assert len(directory) == 0
    assert directory.publish(entry(3)) is STALE
    assert directory.publish(entry(4)) is PUBLISHED


def test_ending_an_old_generation_leaves_a_newer_entry_alone():
    directory = Directory()
    directory.publish(entry(4))
    directory.unpublish("r1", 3)
    assert directory.lookup("r1", 4) == entry(4)


def test_requests_do_not_fence_each_other():
    directory = Directory()
    directory.fence("r1", 9)
    assert directory.publish(entry(1, "r2")) is PUBLISHED
    assert directory.lookup("r1", 1) is None


def test_remembered_fences_are_bounded_and_the_freshest_stay():
    directory = Directory(max_floors=3)
    for name in ("a", "b", "c"):
        directory.fence(name, 1)
    directory.fence("a", 1)  # touched again
    directory.fence("d", 1)
    fenced = {name for name in "abcd" if directory.is_fenced(name, 0)}
    assert fenced == {"a", "c", "d"}


@given(
    st.lists(
        st.tuples(st.sampled_from(["publish", "unpublish", "fence"]), st.integers(0, 5)),
        max_size=30,
    )
)
def test_the_published_generation_of_a_request_never_decreases(steps):
    directory = Directory()
    highest, floor, live = -1, 0, None
    for action, generation in steps:
        if action == "publish":
            allowed = generation >= floor and (live is None or generation > live)
            expected = PUBLISHED if allowed else DUPLICATE if generation == live else STALE
            assert directory.publish(entry(generation)) is expected
            if allowed:
                assert generation > highest, "no generation is published twice or after a newer"
                highest = live = generation
        elif action == "unpublish":
            directory.unpublish("r1", generation)
            live = None if live == generation else live
            floor = max(floor, generation + 1)
        else:
            directory.fence("r1", generation)
            floor = max(floor, generation)
        assert directory.lookup("r1", generation) == (
            entry(generation) if live == generation else None
        )


@pytest.mark.parametrize("generation", [0, 5])
def test_an_unknown_request_has_no_entry(generation):
    assert Directory().lookup("nobody", generation) is None
