"""Minting and checking transfer capabilities: every check by name, the nonce spent last."""

from collections.abc import Callable
from enum import StrEnum

import msgspec

from baton.core.capability import Capability, Region, SignedCapability, covers
from baton.core.ids import Direction, Fence
from baton.protocol.nonces import DRIFT_PPM, SKEW_US, IssuerClock, NonceLedger
from baton.protocol.signing import Signer, Verifier

_DOMAIN = b"baton-capability/1\x00"
"""What is signed begins with this, so that a signature over anything else is never one of these."""
MAX_NONCES = 65_536


class CapabilityDenial(StrEnum):
    """The first check that a capability failed, in the order in which they are made."""

    SIGNATURE = "signature"
    TTL = "ttl"
    EXPIRED = "expired"
    TENANT = "tenant"
    SOURCE = "source"
    DESTINATION = "destination"
    TRANSFER = "transfer"
    ATTEMPT = "attempt"
    ROUTE_EPOCH = "route_epoch"
    REVOKED = "revoked"
    ABI = "abi"
    DIRECTION = "direction"
    REGIONS = "regions"
    BYTES = "bytes"
    NONCE = "nonce"
    LEDGER_FULL = "ledger_full"
    MISSING = "missing"
    """There is none where one is needed."""
    SECOND = "second"
    """The transfer is authorized already, by another one."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is asked to let happen, in its own words: a capability must allow all of it."""

    fence: Fence
    route_epoch: int
    direction: Direction
    regions: tuple[Region, ...]
    nbytes: int
    abi_digest: str


def signed_bytes(capability: Capability) -> bytes:
    """What the issuer signs: the domain, then the MessagePack map of the fields in order."""
    return _DOMAIN + msgspec.msgpack.encode(capability)


class CapabilityIssuer:
    """Mints under one issuer id; the counter makes each nonce unique within it.

    Where a key outlives its process, every life must begin above all nonces of earlier ones.
    """

    def __init__(self, signer: Signer, first_nonce: int = 0) -> None:
        self._signer = signer
        self._last_nonce = first_nonce

    @property
    def issuer(self) -> str:
        """The issuer id under which everything here is minted."""
        return self._signer.issuer

    def mint(self, access: Access, *, now_us: int, ttl_us: int) -> SignedCapability:
        """The right to exactly this access, once."""
        self._last_nonce += 1
        capability = Capability(
            issuer=self._signer.issuer,
            fence=access.fence,
            route_epoch=access.route_epoch,
            direction=access.direction,
            regions=access.regions,
            max_nbytes=access.nbytes,
            abi_digest=access.abi_digest,
            issued_us=now_us,
            ttl_us=ttl_us,
            nonce=self._last_nonce,
        )
        signature = self._signer.sign(signed_bytes(capability))
        return SignedCapability(capability=capability, signature=signature)


class _Issuer:
    """What is remembered of one issuer whose signature held."""

    def __init__(self, clock: IssuerClock, ledger: NonceLedger) -> None:
        self.clock = clock
        self.ledger = ledger


class CapabilityGate:
    """The checks of one life of a worker; bad input is denied by name and never raises."""

    def __init__(
        self,
        verifier: Verifier,
        *,
        max_ttl_us: int,
        max_nonces: int = MAX_NONCES,
        skew_us: int = SKEW_US,
        drift_ppm: int = DRIFT_PPM,
    ) -> None:
        self._verifier = verifier
        self._max_ttl_us = max_ttl_us
        self._max_nonces = max_nonces
        self._skew_us = skew_us
        self._drift_ppm = drift_ppm
        self._issuers: dict[str, _Issuer] = {}
        self.revoked_below = 0
        """Route epochs below this one authorize nothing any more."""

    @property
    def num_nonces(self) -> int:
        """Spent nonces that are remembered."""
        return sum(len(issuer.ledger) for issuer in self._issuers.values())

    def revoke_below(self, route_epoch: int) -> bool:
        """Raise the floor; False when it is there already, since it never falls."""
        if route_epoch <= self.revoked_below:
            return False
        self.revoked_below = route_epoch
        return True

    def admit(
        self, signed: SignedCapability, access: Access, now_us: int
    ) -> CapabilityDenial | None:
        """Spend the capability on this access, or say which check failed; then nothing is spent."""
        capability = signed.capability
        if not self._verifier.verify(capability.issuer, signed_bytes(capability), signed.signature):
            return CapabilityDenial.SIGNATURE
        issuer = self._issuer(capability.issuer)
        issuer.clock.sample(capability.issued_us, now_us)
        for denial, holds in self._checks(capability, access, issuer, now_us):
            if not holds():
                return denial
        issuer.ledger.spend(capability.nonce, capability.expires_us)
        return None

    def _issuer(self, name: str) -> _Issuer:
        """Made only for trusted issuers, so there are no more of these than of those."""
        if name not in self._issuers:
            clock = IssuerClock(skew_us=self._skew_us, drift_ppm=self._drift_ppm)
            self._issuers[name] = _Issuer(clock, NonceLedger(self._max_nonces))
        return self._issuers[name]

    def _checks(
        self, capability: Capability, access: Access, issuer: _Issuer, now_us: int
    ) -> list[tuple[CapabilityDenial, Callable[[], bool]]]:
        mine, theirs, denial = access.fence, capability.fence, CapabilityDenial
        expires_us, epoch = capability.expires_us, capability.route_epoch
        return [
            (denial.TTL, lambda: 0 < capability.ttl_us <= self._max_ttl_us),
            (denial.EXPIRED, lambda: not issuer.clock.is_past(expires_us, now_us)),
            (denial.TENANT, lambda: theirs.tenant_id == mine.tenant_id),
            (denial.SOURCE, lambda: _source(theirs) == _source(mine)),
            (denial.DESTINATION, lambda: _destination(theirs) == _destination(mine)),
            (denial.TRANSFER, lambda: _transfer(theirs) == _transfer(mine)),
            (denial.ATTEMPT, lambda: theirs.attempt == mine.attempt),
            (denial.ROUTE_EPOCH, lambda: epoch == access.route_epoch),
            (denial.REVOKED, lambda: epoch >= self.revoked_below),
            (denial.ABI, lambda: capability.abi_digest == access.abi_digest),
            (denial.DIRECTION, lambda: capability.direction == access.direction),
            (denial.REGIONS, lambda: covers(capability.regions, access.regions)),
            (denial.BYTES, lambda: 0 < access.nbytes <= capability.max_nbytes),
            (denial.NONCE, lambda: not issuer.ledger.is_spent(capability.nonce)),
            (denial.LEDGER_FULL, lambda: issuer.ledger.has_room(issuer.clock, now_us)),
        ]


def _source(fence: Fence) -> tuple[str, int]:
    return fence.source_id, fence.source_epoch


def _destination(fence: Fence) -> tuple[str, int]:
    return fence.destination_id, fence.destination_epoch


def _transfer(fence: Fence) -> tuple[str, int, int]:
    return fence.request_id, fence.generation, fence.reservation_id
