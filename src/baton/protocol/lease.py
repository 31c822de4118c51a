"""Leases in a heap by expiry; renewal moves the expiry, a stale heap row is skipped."""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class LeaseTable(Generic[Key]):
    """Keys that expire unless renewed. Times are the owner's clock, in microseconds."""

    def __init__(self) -> None:
        self._expiry: dict[Key, int] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._expiry)

    def __contains__(self, key: Key) -> bool:
        return key in self._expiry

    def set(self, key: Key, expires_at_us: int) -> None:
        """Start or renew a lease; a renewal never shortens it."""
        if self._expiry.get(key, -1) >= expires_at_us:
            return
        self._expiry[key] = expires_at_us
        self._sequence += 1
        heapq.heappush(self._heap, (expires_at_us, self._sequence, key))

    def drop(self, key: Key) -> None:
        """End a lease without expiring it."""
        self._expiry.pop(key, None)

    def pop_expired(self, now_us: int) -> list[Key]:
        """Remove and return the keys whose lease has ended, earliest first."""
        expired = []
        while self._heap and self._heap[0][0] <= now_us:
            expires_at_us, _, key = heapq.heappop(self._heap)
            if self._expiry.get(key) == expires_at_us:
                del self._expiry[key]
                expired.append(key)
        return expired

    def next_expiry(self) -> int | None:
        """When the earliest live lease ends."""
        while self._heap:
            expires_at_us, _, key = self._heap[0]
            if self._expiry.get(key) == expires_at_us:
                return expires_at_us
            heapq.heappop(self._heap)
        return None
