"""Looks at a gateway again and again beside the screen: a slow answer delays no key."""

import threading
import time
from urllib.parse import quote

import msgspec

from baton.errors import BatonError, ConfigError
from baton.telemetry.gateway_answer import NothingThere, ask_gateway
from baton.telemetry.live.feed import Detail, Feed

FEED_PATH = "/dashboard/feed"
REQUEST_PATH = "/dashboard/request?id="


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What was last seen."""

    feed: Feed
    at_s: float
    """When, on this process's monotonic clock."""
    problem: str = ""
    """Why the last question had no answer; the feed is an older one then."""
    detail: Detail | None = None
    detail_id: str = ""
    """The request that `detail` is of; of one that is not kept, `detail` is None."""


def look_once(url: str) -> Feed:
    """The feed now. Raises ConfigError where no Baton answers, BatonError where it refuses."""
    try:
        return ask_gateway(url, FEED_PATH, Feed)
    except ConfigError as error:
        text = str(error).removeprefix("--url")  # of other verbs; here it is the argument
        raise ConfigError(f"URL{text}") from error


class Watcher:
    """One thread that asks for the feed, and for the request that is open, every so often."""

    def __init__(self, url: str, first: Feed, interval_s: float) -> None:
        self._url = url
        self._interval_s = interval_s
        self._look = Look(feed=first, at_s=time.monotonic())
        self._opened = ""
        self._wake = threading.Event()
        self._is_over = False
        self.is_paused = False
        # A daemon: leaving does not wait for an answer that may take its whole deadline.
        self._thread = threading.Thread(target=self._run, name="baton-top", daemon=True)

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._wake.set()

    @property
    def look(self) -> Look:
        """The newest one."""
        return self._look

    def open(self, request_id: str) -> None:
        """Ask for this request, too, from now on; "" closes it."""
        self._opened = request_id
        self._wake.set()

    def _run(self) -> None:
        while not self._is_over:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            if not self._is_over:
                self._look = self._asked()

    def _asked(self) -> Look:
        before, opened = self._look, self._opened
        try:
            feed, at_s = before.feed, before.at_s
            if not self.is_paused:
                feed, at_s = look_once(self._url), time.monotonic()
            detail = self._detail(opened, before)
        except BatonError as error:
            return msgspec.structs.replace(before, problem=str(error))
        return Look(feed=feed, at_s=at_s, detail=detail, detail_id=opened)

    def _detail(self, request_id: str, before: Look) -> Detail | None:
        if not request_id:
            return None
        if before.detail_id == request_id and before.detail is not None:
            return before.detail  # a request that was told does not change
        try:
            return ask_gateway(self._url, REQUEST_PATH + quote(request_id), Detail)
        except NothingThere:
            return None
