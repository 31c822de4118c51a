"""`baton top` draws a recorded feed of a real deployment on terminals of several sizes."""

from pathlib import Path

import msgspec
import pytest
from rich.console import Console, Group

from baton.telemetry.live.feed import Detail, Feed
from baton.telemetry.top.bars import PHASE_CELLS, STATE_CELLS, block_bar, phase_bar, phase_line
from baton.telemetry.top.command import Screen
from baton.telemetry.top.frame import View, frame
from baton.telemetry.top.keys import Key, keys_in
from baton.telemetry.top.request_frame import request_frame
from baton.telemetry.top.watcher import Watcher

HERE = Path(__file__).parent
FEED = msgspec.json.decode((HERE / "feed.json").read_bytes(), type=Feed)
DETAIL = msgspec.json.decode((HERE / "request.json").read_bytes(), type=Detail)
URL = "http://127.0.0.1:8000"


def lines(drawn: Group, columns: int) -> list[str]:
    console = Console(width=columns, height=10_000, color_system=None)
    rows = console.render_lines(drawn, pad=False)
    return ["".join(segment.text for segment in row) for row in rows]


def view(columns: int, **more) -> View:
    return View(url=URL, columns=columns, num_requests=5, **more)


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_every_frame_fits_and_says_what_the_page_says(columns):
    drawn = lines(frame(FEED, view(columns)), columns)
    text = "\n".join(drawn)
    assert max(map(len, drawn)) <= columns
    for card in FEED.workers:
        mine = next(one for one in drawn if one.startswith(card.worker_id))
        assert mine.split()[1:3] == [card.role, str(card.epoch)]
    assert f"{FEED.ttft.target_ms:.0f} ms" in text and "time per further token" in text
    judged = sum(cell["num"] for cell in FEED.attainment.values())
    assert f"both targets met: 100.0% of {judged:.0f}" in text
    for flow in FEED.flows:
        assert f"{flow.source} → {flow.destination}" in text
    for row in FEED.requests[:5]:
        at = next(i for i, one in enumerate(drawn) if row.request_id[:8] in one)
        sentence = " ".join(" ".join(drawn[at + 1 : at + 6]).split())
        assert sentence.startswith(row.sentence), "the whole sentence, whatever the width"
    assert FEED.requests[5].request_id[:8] not in text


def test_at_40_columns_the_clocks_and_every_letter_are_whole():
    drawn = lines(frame(FEED, view(40)), 40)
    text = "\n".join(drawn)
    assert max(map(len, drawn)) <= 40
    assert f"{FEED.ttft.target_ms:.0f} ms" in text and "target" in text
    seen = {name for row in FEED.requests for name, _, _ in row.spans}
    flat = " ".join(text.split())
    assert all(f"{PHASE_CELLS[n][0]} {n.replace('_', ' ')}" in flat for n in seen)


def test_at_80_columns_a_worker_shows_its_blocks_by_state():
    drawn = lines(frame(FEED, view(80)), 80)
    card = FEED.workers[0]
    at = next(i for i, one in enumerate(drawn) if one.startswith(card.worker_id))
    for state in STATE_CELLS:
        assert f"{card.blocks[state]} {state}" in drawn[at + 1]


def test_nothing_yet_is_said_and_not_drawn_as_zero():
    empty = msgspec.structs.replace(
        FEED, requests=(), flows=(), attainment={}, ttft=msgspec.structs.replace(FEED.ttft, num=0)
    )
    text = "\n".join(lines(frame(empty, view(80)), 80))
    assert "nothing moved" in text and "no request has ended yet" in text
    assert "no targets are set" in text and "–" in text
    off = msgspec.structs.replace(empty, is_live=False)
    assert "telemetry.live is false" in "\n".join(lines(frame(off, view(80)), 80))


def test_text_of_a_server_cannot_move_the_cursor():
    row = msgspec.structs.replace(FEED.requests[0], sentence="a\x1b[2Jb\rc", state="\x1b]0;x\x07")
    evil = msgspec.structs.replace(FEED, requests=(row,), model="m\x1b[31m")
    text = "\n".join(lines(frame(evil, view(80)), 80))
    assert not any(one in text for one in ("\x1b", "\r", "\x07")) and "a?[2Jb?c" in text


def test_the_page_of_a_request_is_its_waterfall_and_its_facts():
    drawn = lines(request_frame(FEED, DETAIL, view(80)), 80)
    assert max(map(len, drawn)) <= 80
    story, begins = DETAIL.story, []
    for name, start_ms, _ in DETAIL.row.spans:
        label = name.replace("_", " ").ljust(13)
        mine = next(one for one in drawn if one.startswith(label) and one.endswith(" ms"))
        bar = mine[13:70]
        begins.append((start_ms, len(bar) - len(bar.lstrip())))
    assert begins == sorted(begins), "each phase begins where the one before it ended"
    text = "\n".join(drawn)
    assert f"{story.num_tokens} prompt" in text and story.policy in text
    gone = "\n".join(lines(request_frame(FEED, None, view(80, chosen="abc")), 80))
    assert "no request abc is kept any more" in gone


def test_bars_have_their_width_and_show_whatever_there_is():
    spans = (("prefill", 0.0, 99.0), ("transfer", 99.0, 0.4), ("first_token", 99.4, 0.6))
    assert phase_bar(spans, 100.0, 10).plain == "P" * 10
    assert phase_line(spans[1], 100.0, 10).plain == " " * 9 + "T"
    assert phase_bar((), 0.0, 10).plain == " " * 10
    for blocks in ({"used": 1, "free": 9999}, {"used": 3, "reserved": 3, "cached": 3}, {"free": 0}):
        bar = block_bar(blocks, 12).plain
        assert len(bar) == 12 and ("#" in bar) is bool(blocks.get("used"))


def test_keys_of_a_terminal():
    assert keys_in(b"\x1b[A\x1bOBjk\rxq") == [
        Key.UP, Key.DOWN, Key.DOWN, Key.UP, Key.OPEN, Key.QUIT,
    ]  # fmt: skip
    assert keys_in(b"\x1b") == [Key.BACK] and keys_in(b"\x1b[Z")[:1] == [Key.BACK]
    assert keys_in(b"") == keys_in(b"xyz") == []


def test_arrows_choose_and_scroll_on_a_small_terminal():
    """80 by 24: requests have room, and the chosen one is always among them."""
    screen = Screen(URL, Watcher(URL, FEED, 60.0), 60.0)
    names = [row.request_id[:8] for row in FEED.requests]
    for number in range(len(names) + 2):
        screen.press([Key.DOWN])
        drawn = lines(screen.draw(80, 24), 80)
        assert len(drawn) <= 24
        (marked,) = [one for one in drawn if one.startswith("▶ ")]
        assert marked[2:10] == names[min(number, len(names) - 1)]
    for _ in range(len(names) + 2):
        screen.press([Key.UP])
    drawn = lines(screen.draw(80, 24), 80)
    assert next(one for one in drawn if one.startswith("▶"))[2:10] == names[0]
    screen.press([Key.PAUSE])
    assert any("paused" in one for one in lines(screen.draw(80, 24), 80))
    screen.press([Key.QUIT])
    assert screen.is_over
