"""The global index against a plain model of it: depths, lives, generations, sweeps."""

from hashlib import blake2b
from random import Random

import pytest

from baton.cache.index import BlockIndex
from baton.core.cache import Place, Tier


def chain(prompt: int, count: int) -> list[bytes]:
    """Names of one prompt's blocks."""
    return [blake2b(b"%d.%d" % (prompt, i), digest_size=16).digest() for i in range(count)]


def place(owner: str, epoch: int = 1, tier: Tier = Tier.MEMORY, generation: int = 0) -> Place:
    return Place(owner, epoch, tier, generation)


def swept(index: BlockIndex) -> BlockIndex:
    for _ in range(1000):
        if not index.sweep(64):
            return index
    raise AssertionError("the sweep does not end")


def test_depths_are_of_leading_blocks_in_any_tier_and_in_memory_alone():
    index, names = BlockIndex(), chain(0, 10)
    index.store(place("p0"), names[:7])
    index.store(place("d0"), names[:3])
    index.store(place("d0", tier=Tier.DISK), names[2:9])
    match = index.match(names)
    assert match.depths == {"p0": 7, "d0": 9}
    assert match.memory_depths == {"p0": 7, "d0": 3}
    assert match.best == ("d0", 9)
    assert index.match(names[:2]).depths == {"p0": 2, "d0": 2}
    assert index.match(names[:2]).best == ("d0", 2), "a tie goes by name"


def test_nobody_is_listed_who_lacks_the_first_block():
    index, names = BlockIndex(), chain(0, 8)
    index.store(place("p0"), names[1:])
    index.store(place("d0", tier=Tier.HOST), names[:1])
    assert index.match(names).depths == {"d0": 1}
    assert index.match(names).memory_depths == {}
    assert not index.match(names[1:]).memory_depths.keys() - {"p0"}
    assert index.match([]).best is None and index.match(chain(9, 4)).best is None
    assert not index.match(chain(9, 4)) and index.match(names)


@pytest.mark.parametrize("hole", range(8))
def test_a_hole_at_which_it_looks_ends_an_owner_there(hole):
    index, names = BlockIndex(), chain(0, 8)
    index.store(place("p0"), names)
    index.store(place("d0"), names[: hole + 1])  # its end is where the walk looks
    index.remove(place("p0"), [names[hole]])
    assert index.match(names).depths.get("p0", 0) == hole


def test_places_say_whose_which_life_tier_and_generation():
    index, names = BlockIndex(), chain(0, 2)
    index.store(place("p1", 4, generation=2), names)
    index.store(place("p0", 3, Tier.HOST), names[:1])
    index.store(place("p0", 3, Tier.MEMORY), names[:1])
    assert set(index.places(names[0])) == {
        place("p1", 4, generation=2),
        place("p0", 3, Tier.HOST),
        place("p0", 3, Tier.MEMORY),
    }
    assert index.places(names[1]) == (place("p1", 4, generation=2),)
    assert index.places(bytes(16)) == ()
    assert index.holdings("p0") == {Tier.MEMORY: 1, Tier.HOST: 1, Tier.DISK: 0}
    assert (index.num_blocks, index.num_claims, set(index)) == (2, 4, set(names))
    index.remove(place("p1", 4, generation=2), names)
    assert (index.num_blocks, index.num_claims) == (1, 2)


def test_a_dead_owner_is_gone_at_once_and_its_late_words_change_nothing():
    index, names = BlockIndex(), chain(0, 600)
    index.store(place("p0", 5), names)
    index.store(place("d0", 1), names[:100])
    index.forget("p0")
    assert index.match(names).depths == {"d0": 100}
    assert index.places(names[50]) == (place("d0"),) and index.places(names[200]) == ()
    index.store(place("p0", 5), names)
    index.store(place("p0", 4), names)
    index.remove(place("p0", 5), names[:1])
    assert index.match(names).depths == {"d0": 100} and index.num_ignored == 1201
    index.store(place("p0", 6), names[:2])
    assert index.match(names).depths == {"d0": 100, "p0": 2}
    assert index.num_claims == 102 and index.num_blocks == 600
    assert swept(index).num_blocks == 100
    assert index.match(names).depths == {"d0": 100, "p0": 2}


def test_a_newer_life_or_generation_voids_the_older_claims_at_once():
    index, names = BlockIndex(), chain(0, 6)
    index.store(place("p0", 1), names)
    index.store(place("p0", 1, generation=1), names[:2])
    assert index.match(names).depths == {"p0": 2}
    index.store(place("p0", 1, generation=0), names)
    assert index.match(names).depths == {"p0": 2} and index.num_ignored == 6
    index.store(place("p0", 2), names[:1])
    assert index.match(names).depths == {"p0": 1}
    assert index.owners() == {"p0": (2, 0)}


def test_a_cleared_owner_may_claim_again_in_the_same_life():
    index, names = BlockIndex(), chain(0, 6)
    index.store(place("p0", 1), names)
    index.clear("p0")
    assert index.match(names).depths == {} and index.num_claims == 0
    index.store(place("p0", 1), names[:4])
    assert index.match(names).depths == {"p0": 4} and index.num_ignored == 0


def test_a_slot_is_taken_again_only_after_its_sweep():
    index, names = BlockIndex(), chain(0, 300)
    index.store(place("p0"), names)
    index.forget("p0")
    index.sweep(1)  # begun, and by far not over
    index.store(place("p1"), names[:1])
    assert index.match(names).depths == {"p1": 1}, "p1 must not inherit what p0 held"
    swept(index)
    index.store(place("p2"), names[:2])
    assert index.match(names).depths == {"p1": 1, "p2": 2}
    assert index._owners.get("p2").slot == 0


def test_a_sweep_is_bounded_and_also_drops_masks_that_nobody_has():
    index = BlockIndex()
    for prompt in range(40):
        index.store(place(f"w{prompt % 7}"), chain(prompt, 100))
    index.forget("w3")
    looked_at = index.sweep(200)
    assert 200 <= looked_at < 400
    assert len(swept(index)._masks) == 6
    assert index.sweep(200) == 0, "nothing to do"


def test_it_equals_a_plain_model_through_random_lives():
    random = Random(3)
    index = BlockIndex()
    prompts = [chain(p, 40) for p in range(6)]
    for p in range(1, 6):  # shared beginnings
        prompts[p][: 4 * p] = prompts[0][: 4 * p]
    held: dict[str, dict[Tier, set[bytes]]] = {}
    epochs = dict.fromkeys("abcdefgh", 1)
    for _ in range(3000):
        name, names = random.choice("abcdefgh"), random.choice(prompts)
        tier, depth = random.choice(list(Tier)), random.randrange(41)
        mine = held.setdefault(name, {tier: set() for tier in Tier})
        match random.randrange(10):
            case 0:
                index.forget(name)
                epochs[name] += 1
                held[name] = {tier: set() for tier in Tier}
            case 1 | 2 | 3:
                gone = [b for p in prompts if p[depth:][:1] == names[depth:][:1] for b in p[depth:]]
                index.remove(place(name, epochs[name], tier), gone)
                mine[tier] -= set(gone)
            case 4:
                index.sweep(random.randrange(1, 50))
            case _:
                index.store(place(name, epochs[name], tier), names[:depth])
                mine[tier] |= set(names[:depth])
        asked = random.choice(prompts)
        match = index.match(asked)
        assert match.memory_depths == depths_of(held, asked, [Tier.MEMORY])
        whole = depths_of(held, asked, list(Tier))
        assert match.depths == whole
        assert match.best == min(((n, d) for n, d in whole.items()), key=_rank, default=None)
    claims = sum(len(names) for tiers in held.values() for names in tiers.values())
    assert index.num_claims == claims
    assert set(index) == {b for tiers in held.values() for names in tiers.values() for b in names}
    assert swept(index).num_claims == claims and index.num_blocks == len(set(index))


def test_holes_never_make_an_owner_look_shallower_than_it_is():
    random = Random(4)
    index, names = BlockIndex(), chain(0, 40)
    held = {name: {Tier.MEMORY: set()} for name in "abcd"}
    for _ in range(2000):
        name, some = random.choice("abcd"), random.sample(names, random.randrange(20))
        if random.random() < 0.7:
            index.store(place(name), some)
            held[name][Tier.MEMORY] |= set(some)
        else:
            index.remove(place(name), some)
            held[name][Tier.MEMORY] -= set(some)
        told = index.match(names).depths
        for owner, depth in depths_of(held, names, [Tier.MEMORY]).items():
            assert told[owner] >= depth
        assert all(names[0] in held[owner][Tier.MEMORY] for owner in told)


def _rank(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def depths_of(held, asked, tiers) -> dict[str, int]:
    """The same by walking: every owner's leading blocks."""
    found = {}
    for name, of_tier in held.items():
        depth = 0
        while depth < len(asked) and any(asked[depth] in of_tier[tier] for tier in tiers):
            depth += 1
        if depth:
            found[name] = depth
    return found
