"""What a worker tells of its holdings reaches the index: in order, once, and repaired."""

from random import Random

from baton.cache.change_feed import ChangeFeed, Told
from baton.cache.change_journal import ChangeJournal
from baton.cache.index import BlockIndex
from baton.core.cache import CacheChange, Tier
from baton.core.messages import CacheChanges, CacheHoldings
from tests.cache.test_block_index import chain

NAMES = chain(0, 60)


def stored(*names: bytes, tier: Tier = Tier.MEMORY) -> CacheChange:
    return CacheChange(stored=True, tier=tier, hashes=names)


def removed(*names: bytes, tier: Tier = Tier.MEMORY) -> CacheChange:
    return CacheChange(stored=False, tier=tier, hashes=names)


class Line:
    """A journal, an index and a feed between them."""

    def __init__(self, **bounds: int) -> None:
        self.journal = ChangeJournal(**bounds)
        self.index = BlockIndex()
        self.feed = ChangeFeed("p0", 1, self.index)

    def say(self, *changes: CacheChange, generation: int = 0) -> CacheChanges:
        message = self.journal.record(changes, generation)
        assert message is not None
        return message

    def take(self, message: CacheChanges | CacheHoldings) -> Told:
        if isinstance(message, CacheChanges):
            return self.feed.on_changes(message)
        return self.feed.on_holdings(message)

    def repair(self) -> list[Told]:
        return [self.take(m) for m in self.journal.replay(self.feed.next_sequence)]

    def known(self) -> dict[Tier, set[bytes]]:
        places = {name: self.index.places(name) for name in NAMES}
        return {
            tier: {name for name, found in places.items() if tier in {p.tier for p in found}}
            for tier in Tier
        }


def test_changes_are_numbered_from_one_and_applied_in_order():
    line = Line()
    first = line.say(stored(*NAMES[:5]), removed(NAMES[4]))
    assert (first.first_sequence, line.journal.next_sequence) == (1, 3)
    assert line.take(first) is Told.APPLIED
    second = line.say(stored(*NAMES[:3], tier=Tier.HOST))
    assert second.first_sequence == 3
    assert line.take(second) is Told.APPLIED
    assert line.index.match(NAMES).depths == {"p0": 4}
    assert line.index.holdings("p0") == {Tier.MEMORY: 4, Tier.HOST: 3, Tier.DISK: 0}
    assert line.journal.num_held == 7
    assert line.journal.record([], 0) is None, "nothing has changed"


def test_a_repeated_change_is_recognised_and_a_partly_known_one_taken_from_where_it_is_new():
    line = Line()
    a, b = line.say(stored(*NAMES[:4])), line.say(removed(*NAMES[2:4]))
    assert [line.take(m) for m in (a, b, a)] == [Told.APPLIED, Told.APPLIED, Told.DUPLICATE]
    assert line.index.match(NAMES).depths == {"p0": 2}, "the repeated word changes nothing"
    both = CacheChanges(generation=0, first_sequence=2, changes=(*b.changes, stored(NAMES[2])))
    assert line.take(both) is Told.APPLIED
    assert line.index.match(NAMES).depths == {"p0": 3}


def test_a_gap_changes_nothing_until_it_is_told_again():
    line = Line()
    line.say(stored(*NAMES[:4]))  # lost
    late = line.say(stored(*NAMES[4:6]))
    assert line.take(late) is Told.GAP
    assert line.index.num_claims == 0
    assert line.repair() == [Told.APPLIED]
    assert line.index.match(NAMES).depths == {"p0": 6}
    assert line.take(late) is Told.DUPLICATE
    assert line.repair() == [], "nothing is missing"


def test_swapped_words_end_in_the_same_state():
    line = Line()
    a, b = line.say(stored(*NAMES[:4])), line.say(removed(*NAMES[1:4]))
    assert [line.take(m) for m in (b, a, b)] == [Told.GAP, Told.APPLIED, Told.APPLIED]
    assert line.index.match(NAMES).depths == {"p0": 1}


def test_what_is_too_old_to_be_replayed_comes_as_pages_that_count_together():
    line = Line(max_tail_hashes=4, max_page_hashes=8)
    line.take(line.say(stored(*NAMES[50:60])))
    line.say(removed(*NAMES[50:60]), stored(*NAMES[:20]))
    line.say(stored(*NAMES[:3], tier=Tier.DISK))
    pages = line.journal.replay(line.feed.next_sequence)
    assert [(m.page, m.num_pages) for m in pages] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert all(isinstance(m, CacheHoldings) for m in pages)
    for page in (pages[2], pages[0], pages[0], pages[3]):
        assert line.take(page) is Told.PARTIAL
        assert line.index.match(NAMES[50:]).depths == {"p0": 10}, "until the last page: the old"
    assert line.take(pages[1]) is Told.APPLIED
    assert line.known() == {
        Tier.MEMORY: set(NAMES[:20]),
        Tier.HOST: set(),
        Tier.DISK: set(NAMES[:3]),
    }
    assert line.take(pages[1]) is Told.DUPLICATE
    assert line.take(line.say(removed(*NAMES[5:20]))) is Told.APPLIED
    assert line.index.match(NAMES).memory_depths == {"p0": 5}


def test_pages_of_an_older_account_do_not_mix_with_newer_ones():
    line = Line(max_tail_hashes=4, max_page_hashes=8)
    line.say(stored(*NAMES[:16]))
    old = line.journal.replay(1)
    line.say(removed(*NAMES[8:16]), stored(*NAMES[20:28]))
    new = line.journal.replay(1)
    assert [line.take(m) for m in (old[0], new[1])] == [Told.PARTIAL, Told.PARTIAL]
    assert line.take(old[1]) is Told.DUPLICATE
    assert line.take(new[0]) is Told.APPLIED
    assert line.known()[Tier.MEMORY] == {*NAMES[:8], *NAMES[20:28]}


def test_to_hold_nothing_is_told_too():
    line = Line(max_tail_hashes=1)
    line.take(line.say(stored(*NAMES[:4])))
    line.say(removed(*NAMES[:4]))
    assert line.repair() == [Told.APPLIED]
    assert line.index.num_claims == 0


def test_a_lost_last_change_is_asked_for_once_per_retry_time():
    line = Line()
    line.say(stored(*NAMES[:4]))  # lost, and nothing comes after it
    told = line.journal.next_sequence
    asked = [line.feed.wants_replay(told, now_us, 500) for now_us in (0, 200, 499, 500, 900)]
    assert asked == [True, False, False, True, False]
    line.repair()
    assert not line.feed.wants_replay(told, 2000, 500)
    assert line.feed.wants_replay(told + 1, 2001, 500), "another loss is asked for at once"


def test_a_raised_generation_voids_the_rest_even_when_nothing_else_changes():
    line = Line()
    line.take(line.say(stored(*NAMES[:4])))
    raised = line.say(generation=3)
    assert raised.changes and line.journal.num_held == 0
    assert line.take(raised) is Told.APPLIED
    assert line.index.num_claims == 0 and line.index.owners() == {"p0": (1, 3)}
    line.take(line.say(stored(*NAMES[:2]), generation=3))
    assert {place.generation for place in line.index.places(NAMES[0])} == {3}


def test_the_loss_of_a_raised_generation_is_repaired_like_any_other():
    line = Line()
    line.take(line.say(stored(*NAMES[:4])))
    line.say(generation=1)  # lost
    assert line.take(line.say(stored(*NAMES[:2]), generation=1)) is Told.GAP
    assert line.repair() == [Told.APPLIED]
    assert line.index.match(NAMES).depths == {"p0": 2}


def test_a_cleared_cache_is_empty_at_once_though_its_worker_has_not_followed():
    line = Line()
    line.take(line.say(stored(*NAMES[:4])))
    line.index.raise_generation(1)
    assert line.index.match(NAMES).depths == {}
    assert line.take(line.say(stored(*NAMES[4:8]))) is Told.APPLIED
    assert line.index.num_claims == 0, "followed, and not claimed"
    assert line.take(line.say(stored(NAMES[0]), generation=1)) is Told.APPLIED
    assert line.index.match(NAMES).depths == {"p0": 1}


def test_words_that_no_worker_says_change_nothing():
    line = Line()
    line.take(line.say(stored(*NAMES[:4])))
    for wrong in (
        CacheChanges(generation=0, first_sequence=0, changes=(stored(NAMES[9]),) * 9),
        CacheChanges(generation=0, first_sequence=2, changes=(stored(b""),)),
        CacheHoldings(generation=0, next_sequence=9, page=2, num_pages=2, holdings=()),
        CacheHoldings(generation=0, next_sequence=9, page=-1, num_pages=2, holdings=()),
        CacheHoldings(generation=0, next_sequence=9, page=0, num_pages=1, holdings=(stored(b"x"),)),
    ):
        assert line.take(wrong) is Told.MALFORMED
    assert line.index.match(NAMES).depths == {"p0": 4}


def test_any_loss_repetition_and_order_ends_in_what_is_held():
    for seed in range(60):
        random = Random(seed)
        line = Line(max_tail_hashes=random.choice((3, 30, 300)), max_page_hashes=7)
        held: dict[Tier, set[bytes]] = {tier: set() for tier in Tier}
        generation, wire = 0, []
        for _ in range(60):
            tier, some = random.choice(list(Tier)), tuple(random.sample(NAMES, 6))
            if random.random() < 0.06:
                generation += 1
                held = {tier: set() for tier in Tier}
            if random.random() < 0.6:
                message = line.say(stored(*some, tier=tier), generation=generation)
                held[tier] |= set(some)
            else:
                message = line.say(removed(*some, tier=tier), generation=generation)
                held[tier] -= set(some)
            wire += [message] * random.choice((0, 1, 1, 1, 2))
            if random.random() < 0.2:
                wire += line.journal.replay(line.feed.next_sequence)
            while wire and random.random() < 0.7:
                line.take(wire.pop(random.randrange(min(4, len(wire)))))
        for message in line.journal.replay(line.feed.next_sequence):
            line.take(message)
        assert line.known() == held, seed
        assert line.journal.num_held == sum(map(len, held.values()))
