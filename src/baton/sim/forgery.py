"""Messages altered on their way: by somebody without the router's key, or by a confused peer."""

from collections import deque

from msgspec.structs import replace

from baton.core.capability import SignedCapability
from baton.core.messages import (
    Aborted,
    Accepted,
    ChunksReady,
    Done,
    Envelope,
    Message,
    Prefill,
    Present,
    Published,
    Reserved,
    TokenRow,
    TokenRows,
)
from baton.nodes.context import ROUTER

KINDS = ("forge", "replay", "strip", "mangle", "intrude")
_NUM_RECENT = 8


class Forgery:
    """Remembers what passed, so that it can be put where it does not belong."""

    def __init__(self) -> None:
        self._recent: deque[SignedCapability] = deque(maxlen=_NUM_RECENT)
        self._lives: dict[str, int] = {}

    def see(self, envelope: Envelope) -> None:
        """A message passes; who speaks lives, and what it shows may be shown again."""
        message = envelope.message
        self._lives[envelope.sender_id] = envelope.sender_epoch
        signed = message.capability if isinstance(message, Prefill | Present) else None
        if signed is not None and signed not in self._recent:
            self._recent.append(signed)

    def altered(self, kind: str, number: int, envelope: Envelope) -> Envelope | None:
        """What arrives instead (or, for an intruder, before); None where that fault has no hold."""
        if kind == "intrude":
            return self._intruded(number, envelope)
        message = envelope.message
        changed: Message | None = None
        if isinstance(message, Prefill | Present) and message.capability is not None:
            changed = self._with_other_right(kind, number, message)
        elif isinstance(message, ChunksReady) and kind == "mangle":
            changed = _mangled(message, number)
        return replace(envelope, message=changed) if changed is not None else None

    def _with_other_right(
        self, kind: str, number: int, message: Prefill | Present
    ) -> Message | None:
        signed = message.capability
        assert signed is not None
        if kind == "forge":
            wider = replace(signed.capability, max_nbytes=signed.capability.max_nbytes + 1)
            return replace(message, capability=replace(signed, capability=wider))
        if kind == "strip" and isinstance(message, Prefill):
            return replace(message, capability=None)
        if kind == "replay":
            others = [other for other in self._recent if other != signed]
            return replace(message, capability=others[number % len(others)]) if others else None
        return None

    def _intruded(self, number: int, envelope: Envelope) -> Envelope | None:
        """Another live worker says to the router what only the sender may say."""
        lives = {name: life for name, life in self._lives.items() if name != ROUTER}
        others = sorted(lives.keys() - {envelope.sender_id})
        said = _said_by_another(envelope.message)
        if said is None or not others:
            return None
        name = others[number % len(others)]
        return Envelope(sender_id=name, sender_epoch=lives[name], message=said)


def _mangled(message: ChunksReady, number: int) -> ChunksReady:
    """A block too few, or a block that no pool has."""
    blocks = message.source_block_ids
    blocks = blocks[1:] if number % 2 else (*blocks[1:], 1 << 20)
    return replace(message, source_block_ids=blocks)


def _said_by_another(message: Message) -> Message | None:
    """A word that does harm if it counts."""
    match message:
        case TokenRows(rows=rows):
            return TokenRows(rows=tuple(_other_token(row) for row in rows))
        case Published():
            return replace(message, cached_tokens=message.cached_tokens + 1)
        case Done(usage=usage):
            shorter = replace(usage, completion_tokens=0, cached_tokens=usage.cached_tokens + 1)
            return replace(message, finish_reason="stop", usage=shorter)
        case Reserved() | Accepted():
            return message
        case Aborted():
            return replace(message, reason="intruder")
    return None


def _other_token(row: TokenRow) -> TokenRow:
    return replace(row, token=replace(row.token, token_id=row.token.token_id ^ 1))
