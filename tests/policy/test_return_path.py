"""The return path is priced, not assumed."""

from msgspec.structs import replace

from baton.core.snapshot import Rates
from baton.nodes.continuations import Continuations
from baton.policy.return_path import ReturnQuestion, return_price

QUESTION = ReturnQuestion(
    num_tokens=160,
    num_held_tokens=128,
    bytes_per_token=46_080,
    continuation=0.5,
    prefill=Rates(prefill_us_per_token=2_000.0),
    bytes_per_us=4_000.0,
    overhead_us=100.0,
)


def test_it_compares_the_expected_recompute_with_the_move():
    price = return_price(QUESTION)
    assert price.saved_us == 0.5 * 32 * 2_000
    assert price.cost_us == 32 * 46_080 / 4_000 + 100
    assert price.pays


def test_pairs_make_late_rows_dearer():
    dear = replace(QUESTION, prefill=Rates(prefill_us_per_token=2_000, prefill_us_per_pair=1.0))
    pairs = 32 * 128 + 32 * 33 / 2
    assert return_price(dear).saved_us == 0.5 * (32 * 2_000 + pairs)


def test_a_slow_link_or_a_rare_next_turn_does_not_pay():
    assert not return_price(replace(QUESTION, bytes_per_us=20.0)).pays
    assert not return_price(replace(QUESTION, continuation=0.005)).pays


def test_nothing_to_move_or_nothing_measured_does_not_pay():
    assert not return_price(replace(QUESTION, num_held_tokens=160)).pays
    assert not return_price(replace(QUESTION, bytes_per_us=0.0)).pays


def test_the_share_of_continued_histories_follows_what_is_seen():
    seen = Continuations()
    assert seen.share == 0.5
    for number in range(200):
        seen.finished(b"%d" % number)
        if number % 4 == 0:
            seen.arrived([b"other", b"%d" % number, b"new"])
    assert 0.2 < seen.share < 0.3


def test_a_history_is_gone_on_from_once():
    seen = Continuations()
    seen.finished(b"end")
    before = seen.share
    seen.arrived([b"end", b"a"])
    after = seen.share
    seen.arrived([b"end", b"b"])
    assert before < after == seen.share


def test_histories_are_bounded():
    seen = Continuations()
    for number in range(5_000):
        seen.finished(b"%d" % number)
    share = seen.share
    seen.arrived([b"0"])
    assert seen.share == share, "the oldest were forgotten"
