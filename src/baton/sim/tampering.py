"""What a story does to chosen messages on their way: lose, repeat, hold, forge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

import msgspec

from baton.core.capability import SignedCapability
from baton.core.messages import Envelope, Hello, Message, Prefill, fence_of
from baton.sim.telling import Teller

if TYPE_CHECKING:
    from baton.sim.world import World

KINDS = {kind.__name__: kind for kind in get_args(Message)}
"""Every message of the control channel by its name."""
ALWAYS = 1 << 62


class Rule(msgspec.Struct, kw_only=True):
    """What happens to the next `left` messages of a kind; empty names match everybody."""

    action: str
    kind: str
    left: int = 1
    sender: str = ""
    receiver: str = ""
    request_id: str = ""
    after_us: int = 1_000

    def matches(self, receiver: str, envelope: Envelope) -> bool:
        """Is this message meant?"""
        fence = fence_of(envelope.message)
        request_id = fence.request_id if fence is not None else ""
        return (
            self.left > 0
            and type(envelope.message).__name__ == self.kind
            and self.sender in ("", envelope.sender_id)
            and self.receiver in ("", receiver)
            and self.request_id in ("", request_id)
        )


class Tampering:
    """Stands between a world's processes; it sees every message, and alters what rules name."""

    def __init__(self, world: World, teller: Teller) -> None:
        self._world = world
        self._teller = teller
        self._held: list[tuple[str, Envelope]] = []
        self._capabilities: dict[str, SignedCapability] = {}
        self._forged: dict[str, str] = {}
        self.rules: list[Rule] = []
        self.seen: set[str] = set()
        """Kinds sent so far, lost ones included."""
        world.network.tamper = self._tamper

    def _tamper(self, receiver: str, envelope: Envelope) -> Sequence[int]:
        network, now_us = self._world.network, self._world.timeline.now_us
        message = envelope.message
        self.seen.add(type(message).__name__)
        if isinstance(message, Hello):
            return (0,)
        if network.is_partitioned(envelope.sender_id, receiver):
            self._teller.interfere(now_us, receiver, envelope, "unreachable")
            return ()
        if isinstance(message, Prefill) and message.capability is not None:
            request_id = message.fence.request_id
            self._capabilities[request_id] = message.capability
            owner = self._forged.pop(request_id, "")
            if owner:
                self._send_forged(receiver, envelope, message, owner)
                return ()
        rule = next((r for r in self.rules if r.matches(receiver, envelope)), None)
        if rule is None:
            return (0,)
        rule.left -= 1
        return self._apply(rule, receiver, envelope)

    def _apply(self, rule: Rule, receiver: str, envelope: Envelope) -> Sequence[int]:
        now_us = self._world.timeline.now_us
        if rule.action == "drop":
            self._teller.interfere(now_us, receiver, envelope, "lost")
            return ()
        if rule.action == "duplicate":
            self._teller.interfere(now_us, receiver, envelope, "will arrive twice")
            return (0, rule.after_us)
        self._teller.interfere(now_us, receiver, envelope, "held")
        self._held.append((receiver, envelope))
        return ()

    def _send_forged(self, receiver: str, envelope: Envelope, message: Prefill, owner: str) -> None:
        """The same prefill with a right that was minted for another transfer."""
        now_us, stolen = self._world.timeline.now_us, self._capabilities[owner]
        self._teller.interfere(now_us, receiver, envelope, f"forged with the right of {owner}")
        forged = msgspec.structs.replace(message, capability=stolen)
        self._world.network.send(receiver, msgspec.structs.replace(envelope, message=forged))

    def forge(self, request_id: str, owner: str) -> bool:
        """The next prefill of a request carries another's capability; False if none was seen."""
        if owner not in self._capabilities:
            return False
        self._forged[request_id] = owner
        return True

    def release(self, kind: str) -> int:
        """Send what is held of a kind ("" means everything), and stop holding; how many."""
        self.rules = [r for r in self.rules if r.action != "hold" or kind not in ("", r.kind)]
        going = [item for item in self._held if kind in ("", type(item[1].message).__name__)]
        self._held = [item for item in self._held if item not in going]
        for receiver, envelope in going:
            self._world.network.send(receiver, envelope)
        return len(going)

    def heal(self) -> None:
        """No rule holds any more; what is held arrives."""
        self.rules.clear()
        self.release("")
