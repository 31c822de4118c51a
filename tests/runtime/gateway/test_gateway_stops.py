"""Stop strings: the result must not depend on how the text was cut."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from baton.runtime.gateway.stops import StopMatcher

TEXT = st.text(alphabet="abc", max_size=40)
STOPS = st.lists(st.text(alphabet="abc", min_size=1, max_size=6), min_size=1, max_size=4)


def reference(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The slow definition: the first end of any stop string; the longest of several."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


@settings(max_examples=400, deadline=None)
@given(TEXT, STOPS, st.lists(st.integers(0, 40), max_size=12))
def test_any_cut_gives_the_reference(text: str, stops: list[str], cuts: list[int]) -> None:
    expected, matched = reference(text, stops)
    matcher = StopMatcher(tuple(stops))
    shown = ""
    bounds = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    for begin, end in itertools.pairwise(bounds):
        shown += matcher.push(text[begin:end])
        # What was shown is never taken back, and never shows a part of a later match.
        assert expected.startswith(shown)
        if matcher.matched is not None:
            break
    else:
        shown += matcher.flush()
    assert (shown, matcher.matched) == (expected, matched)


def test_holds_back_only_what_may_still_match() -> None:
    matcher = StopMatcher(("END",))
    assert matcher.push("the E") == "the "
    assert matcher.push("N") == ""
    assert matcher.push("TER") == "ENTER"
    assert matcher.push(" EN") == " "
    assert matcher.push("D tail") == ""
    assert matcher.matched == "END"


def test_flush_gives_back_an_unfinished_beginning() -> None:
    matcher = StopMatcher(("\n\n",))
    assert matcher.push("a\n") == "a"
    assert matcher.flush() == "\n"
