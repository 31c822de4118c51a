"""`baton top`: one frame, or the screen of a terminal until somebody leaves."""

import sys
import time
from contextlib import suppress

import msgspec
from rich.console import Console, Group
from rich.live import Live

from baton.errors import ConfigError
from baton.telemetry.live.feed import Feed
from baton.telemetry.top.frame import KEYS, View, frame, height_without_requests, request_lines
from baton.telemetry.top.keys import Key, keyboard
from baton.telemetry.top.request_frame import request_frame
from baton.telemetry.top.watcher import Look, Watcher, look_once

_POLL_S = 0.1
_LEAST_COLUMNS = 40
_LEAST_ROOM = 12
"""Lines for requests, below which what is above them is told in fewer lines."""
DETAIL_KEYS = "↑ ↓ other request   Esc back   q quit"


def top_once(url: str, console: Console, num_requests: int) -> None:
    """Print one frame. Raises ConfigError where no Baton answers."""
    columns = max(_LEAST_COLUMNS, console.width)
    view = View(url=url, columns=columns, num_requests=num_requests)
    console.print(frame(look_once(url), view), highlight=False, soft_wrap=False)


def top_screen(url: str, console: Console, interval_s: float) -> None:
    """Fill the terminal until `q`. Raises ConfigError where no Baton answers at the start.

    A gateway that goes away later is said to be away, and shown again once it is back.
    """
    if not (sys.stdin.isatty() and console.is_terminal):
        raise ConfigError(
            "baton top draws on a terminal and this is none; use --once to print one frame"
        )
    first = look_once(url)
    with (
        suppress(KeyboardInterrupt),
        keyboard() as keys,
        Watcher(url, first, interval_s) as watcher,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        screen = Screen(url, watcher, interval_s)
        while not screen.is_over:
            live.update(screen.draw(console.width, console.height), refresh=True)
            screen.press(keys.wait(_POLL_S))


class Screen:
    """What is chosen, and which page is shown."""

    def __init__(self, url: str, watcher: Watcher, interval_s: float) -> None:
        self._url = url
        self._watcher = watcher
        self._interval_s = interval_s
        self._chosen = ""
        self._is_open = False
        self._first = 0
        self.is_over = False

    def press(self, keys: list[Key]) -> None:
        """Take what was pressed."""
        for key in keys:
            match key:
                case Key.UP:
                    self._move(-1)
                case Key.DOWN:
                    self._move(1)
                case Key.OPEN if self._chosen:
                    self._open(is_open=True)
                case Key.BACK:
                    self._open(is_open=False)
                case Key.PAUSE:
                    self._watcher.is_paused = not self._watcher.is_paused
                case Key.QUIT:
                    self.is_over = True

    def _open(self, *, is_open: bool) -> None:
        self._is_open = is_open
        self._watcher.open(self._chosen if is_open else "")

    def _move(self, step: int) -> None:
        names = [row.request_id for row in self._watcher.look.feed.requests]
        if not names:
            return
        at = names.index(self._chosen) + step if self._chosen in names else 0
        self._chosen = names[min(len(names) - 1, max(0, at))]
        if self._is_open:
            self._watcher.open(self._chosen)

    def draw(self, columns: int, lines: int) -> Group:
        """The page as it is now, on a terminal of this size."""
        look = self._watcher.look
        view = View(
            url=self._url,
            columns=max(_LEAST_COLUMNS, columns),
            num_requests=0,
            chosen=self._chosen,
            note=self._note(look),
        )
        if self._is_open:
            detail = look.detail if look.detail_id == self._chosen else None
            if look.detail_id == self._chosen or look.problem:
                shown = msgspec.structs.replace(view, keys=DETAIL_KEYS)
                return request_frame(look.feed, detail, shown)
        return frame(look.feed, self._scrolled(look.feed, view, lines))

    def _note(self, look: Look) -> str:
        if look.problem:
            ago_s = time.monotonic() - look.at_s
            return f"not answering for {ago_s:.0f} s, asking again: {look.problem}"
        if self._watcher.is_paused:
            return "paused; p goes on"
        return ""

    def _scrolled(self, feed: Feed, view: View, lines: int) -> View:
        """As many requests as have room, the chosen one among them."""
        view = msgspec.structs.replace(view, keys=KEYS)
        room = lines - height_without_requests(feed, view)
        if room < _LEAST_ROOM:
            view = msgspec.structs.replace(view, is_short=True)
            room = lines - height_without_requests(feed, view)
        names = [row.request_id for row in feed.requests]
        at = names.index(self._chosen) if self._chosen in names else 0
        self._first = min(self._first, at)
        while self._first < at and self._num_fitting(feed, view, room) <= at - self._first:
            self._first += 1
        num = max(1, self._num_fitting(feed, view, room))
        return msgspec.structs.replace(view, first=self._first, num_requests=num)

    def _num_fitting(self, feed: Feed, view: View, room: int) -> int:
        """Requests from the first one on that fit into so many lines."""
        num = 0
        for row in feed.requests[self._first :]:
            room -= len(list(request_lines(row, view)))
            if room < 0:
                break
            num += 1
        return num
