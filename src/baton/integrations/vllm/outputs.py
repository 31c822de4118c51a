"""Effects of the connector's node beside the core's own: messages, peers, answers to vLLM."""

import msgspec

from baton.core.effects import CancelIo, DigestChunk, MoveChunk
from baton.integrations.vllm.info import Member
from baton.integrations.vllm.messages import Message, Pair, Paired
from baton.integrations.vllm.orders import Ended


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """Send a message to a life of a peer that is known."""

    worker_id: str
    epoch: int
    message: Message


class Meet(msgspec.Struct, frozen=True, kw_only=True):
    """Open the way to a source and send it this side's `Pair`; repeated until it answers."""

    member: Member


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """A peer's cache fits: connect the data plane to its region, then answer with `joined`."""

    hello: Pair | Paired


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """That life of a peer is over: disconnect it."""

    worker_id: str
    epoch: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Tell vLLM's scheduler, with the next step."""

    ended: Ended


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """Every check of one leg of a load holds: it is published with the others, or not at all."""

    transfer_id: str
    vllm_id: str


class LegLost(msgspec.Struct, frozen=True, kw_only=True):
    """One leg of a load is being given up: the others are not wanted any more."""

    vllm_id: str
    reason: str


Output = (
    Tell | Meet | Join | Part | Answer | MoveChunk | DigestChunk | CancelIo | Verified | LegLost
)
