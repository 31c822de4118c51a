"""Tickets: what a gateway puts into `kv_transfer_params`, so that no client can steer a transfer.

A ticket is signed as a whole. It holds a capability, signed by itself, that names tenant, request,
generation, both lives, direction, cache ABI, byte bound, expiry and nonce; around it stand the
addresses to talk to. The capability allows the caches of both lives; which blocks are touched is
fixed by the destination's grant, which the source checks against it and then spends the nonce.
"""

import base64
import binascii
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from baton.core.capability import SignedCapability, abi_digest
from baton.core.ids import Direction, Fence
from baton.errors import ConfigError
from baton.integrations.vllm.info import ConnectorInfo, Member
from baton.protocol.capability import Access, CapabilityIssuer
from baton.protocol.signing import Signer, Verifier

TICKET_KEY = "baton_ticket"
"""Where a ticket lies within `kv_transfer_params`."""
MAX_TICKET_CHARS = 16_384
_DOMAIN = b"baton-vllm-ticket/1\x00"


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """One handoff between two connectors."""

    capability: SignedCapability
    source: Member
    destination: Member
    deadline_ms: int
    """How long the source may keep the blocks, and the destination wait, from when each hears of
    it; renewal never extends a handoff beyond it."""

    @property
    def fence(self) -> Fence:
        """Under which everything of this handoff happens; the reservation is not known yet."""
        return self.capability.capability.fence

    @property
    def transfer_id(self) -> str:
        """Names the handoff on both sides; vLLM's own request ids differ there."""
        return self.fence.transfer_id

    @property
    def direction(self) -> Direction:
        """Who moves the bytes."""
        return self.capability.capability.direction


class _SignedTicket(msgspec.Struct, frozen=True, array_like=True):
    issuer: str
    ticket: bytes
    signature: bytes


class BadTicket(Exception):
    """Why parameters of a request are not honoured, by one word."""


class TicketIssuer:
    """Mints tickets for one life of a gateway."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        # The key outlives the gateway, and its nonces must not come again: no life mints more than
        # one a microsecond.
        self._capabilities = CapabilityIssuer(signer, first_nonce=time.time_ns() // 1000)

    def mint(
        self,
        fence: Fence,
        source: ConnectorInfo,
        destination: ConnectorInfo,
        *,
        direction: Direction,
        route_epoch: int,
        now_us: int,
        deadline_ms: int,
        max_num_tokens: int = 0,
    ) -> str:
        """The text of a ticket for one handoff, once.

        `fence` must name both lives, without a reservation. `max_num_tokens` bounds the bytes;
        0 allows what the destination's longest sequence takes. Raises ConfigError when the pair
        cannot serve this direction.
        """
        _require_pair(fence, source, destination)
        layout = destination.layout
        num_tokens = max_num_tokens or destination.max_model_len
        access = Access(
            fence=fence,
            route_epoch=route_epoch,
            direction=direction,
            regions=source.regions + destination.regions,
            nbytes=layout.num_blocks(num_tokens) * layout.bytes_per_block,
            abi_digest=abi_digest(destination.identity, layout, source.layout),
        )
        capability = self._capabilities.mint(access, now_us=now_us, ttl_us=1000 * deadline_ms)
        ticket = Ticket(
            capability=capability,
            source=source.member,
            destination=destination.member,
            deadline_ms=deadline_ms,
        )
        body = msgspec.msgpack.encode(ticket)
        signature = self._signer.sign(_DOMAIN + body)
        signed = _SignedTicket(self._signer.issuer, body, signature)
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(signed)).decode()


def _require_pair(fence: Fence, source: ConnectorInfo, destination: ConnectorInfo) -> None:
    lives = [
        ("source", fence.source_id, fence.source_epoch, source.member),
        ("destination", fence.destination_id, fence.destination_epoch, destination.member),
    ]
    for side, worker_id, epoch, member in lives:
        if (worker_id, epoch) != (member.worker_id, member.epoch):
            raise ConfigError(
                f"fence.{side} is {worker_id!r} epoch {epoch}, and the connector is "
                f"{member.worker_id!r} epoch {member.epoch}; ask the connector for its status again"
            )
    if not source.can_send:
        raise ConfigError(f"{fence.source_id} has kv_role {source.role}; a source needs a producer")
    if not destination.can_receive:
        raise ConfigError(
            f"{fence.destination_id} has kv_role {destination.role}; a destination needs a consumer"
        )


def read_ticket(text: object, verifier: Verifier) -> Ticket:
    """The ticket that a trusted issuer signed. Raises BadTicket with one word and nothing else."""
    if text is None:
        raise BadTicket("missing")
    if not isinstance(text, str) or len(text) > MAX_TICKET_CHARS:
        raise BadTicket("malformed")
    try:
        signed = msgspec.msgpack.decode(base64.urlsafe_b64decode(text), type=_SignedTicket)
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        raise BadTicket("malformed") from None
    if not verifier.verify(signed.issuer, _DOMAIN + signed.ticket, signed.signature):
        raise BadTicket("signature")
    try:
        return msgspec.msgpack.decode(signed.ticket, type=Ticket)
    except Exception:  # signed, so of a gateway of another version
        raise BadTicket("version") from None


def prefill_params(ticket: str) -> dict[str, Any]:
    """`kv_transfer_params` of the prefill leg."""
    return {"do_remote_decode": True, "do_remote_prefill": False, TICKET_KEY: ticket}


def decode_params(ticket: str, answer: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`kv_transfer_params` of the decode leg; `answer` are those of the prefill leg's response.

    A push posts both legs at once and has no answer yet.
    """
    params = {"do_remote_decode": False, "do_remote_prefill": True, TICKET_KEY: ticket}
    cached = (answer or {}).get("remote_prefill_cached_tokens")
    if isinstance(cached, int):
        params["remote_prefill_cached_tokens"] = cached
    return params
