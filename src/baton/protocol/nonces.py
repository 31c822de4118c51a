"""Replay protection of one issuer: a lower bound of its clock, and the nonces it has spent."""

import heapq

SKEW_US = 50_000
DRIFT_PPM = 200


class IssuerClock:
    """What a verifier knows of another host's clock: never more than the true value.

    A capability that is here was issued before, so the issuer's clock is at least at its
    `issued_us`. From there on it advances with this clock, less the drift that two clocks may have.
    """

    def __init__(self, *, skew_us: int = SKEW_US, drift_ppm: int = DRIFT_PPM) -> None:
        self._skew_us = skew_us
        self._drift_ppm = drift_ppm
        self._bound_us: int | None = None
        self._sampled_at_us = 0

    def sample(self, issued_us: int, now_us: int) -> None:
        """Take a genuine time of the issuer's; one that proves nothing new is ignored."""
        bound_us = self._lower_bound_us(now_us)
        if bound_us is None or issued_us > bound_us:
            self._bound_us, self._sampled_at_us = issued_us, now_us

    def is_past(self, issuer_time_us: int, now_us: int) -> bool:
        """True when the issuer's clock is certainly past a time of its own."""
        bound_us = self._lower_bound_us(now_us)
        return bound_us is not None and bound_us - self._skew_us > issuer_time_us

    def _lower_bound_us(self, now_us: int) -> int | None:
        if self._bound_us is None:
            return None
        elapsed_us = max(0, now_us - self._sampled_at_us)
        drift_us = -(-elapsed_us * self._drift_ppm // 1_000_000)
        return self._bound_us + elapsed_us - drift_us


class NonceLedger:
    """Spent nonces of one issuer, each kept until its capability has certainly expired."""

    def __init__(self, max_nonces: int) -> None:
        self._max_nonces = max_nonces
        self._spent: set[int] = set()
        self._by_expiry: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._spent)

    def is_spent(self, nonce: int) -> bool:
        """True when a capability with this nonce was used."""
        return nonce in self._spent

    def has_room(self, clock: IssuerClock, now_us: int) -> bool:
        """True when another nonce fits, after forgetting those that expiry refuses anyway."""
        while self._by_expiry and clock.is_past(self._by_expiry[0][0], now_us):
            self._spent.discard(heapq.heappop(self._by_expiry)[1])
        return len(self._spent) < self._max_nonces

    def spend(self, nonce: int, expires_us: int) -> None:
        """Remember a nonce; the caller has seen that it is fresh and fits."""
        assert nonce not in self._spent and len(self._spent) < self._max_nonces
        self._spent.add(nonce)
        heapq.heappush(self._by_expiry, (expires_us, nonce))
