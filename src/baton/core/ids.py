"""Identifiers and the fence that every protocol message carries (specification 0x01A)."""

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """What a worker does; MIXED runs both phases and serves colocated requests."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


class Mode(StrEnum):
    """How a request ran; reported to the client, never changed silently."""

    COLOCATED = "colocated"
    DISAGGREGATED = "disaggregated"
    RECOMPUTED = "recomputed"


class Direction(StrEnum):
    """Who moves the bytes: the source writes (push) or the destination reads (pull)."""

    PUSH = "push"
    PULL = "pull"


class PromptOrder(StrEnum):
    """In which order waiting prompts start: as they came, shortest first, or longest first."""

    FCFS = "fcfs"
    SJF = "sjf"
    LJF = "ljf"


class Schedule(StrEnum):
    """When bytes may move, and how much at once (0x07, 0x08I, 0x09E)."""

    LAYER = "layer"
    """As each layer is ready."""
    REQUEST = "request"
    """After the whole prompt, chunk by chunk."""
    AGGREGATED = "aggregated"
    """After the whole prompt, everything in one order, or in as few as the credit allows."""


class Purpose(StrEnum):
    """What a transfer is for, which decides what its publication makes readable."""

    HANDOFF = "handoff"
    """A request's state, for decode: published in the decode directory."""
    INSERT = "insert"
    """History, for later prompts: published by naming its blocks (transfer_with_insert, 0x09B)."""


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """Identity fence of one handoff attempt (0x01A); compared before a message kind is read.

    A newer `generation` supersedes every older one of the same request. Epochs change when a
    worker restarts, so a late message from an earlier life of either worker cannot match.
    `reservation_id` is minted by the destination and is 0 until it has answered.
    """

    tenant_id: str
    request_id: str
    generation: int
    attempt: int
    source_id: str
    source_epoch: int
    destination_id: str
    destination_epoch: int
    reservation_id: int = 0

    @property
    def transfer_id(self) -> str:
        """Idempotency key of the transfer: one per request and generation."""
        return f"{self.request_id}.{self.generation}"

    @property
    def colocated(self) -> bool:
        """True when source and destination are the same worker."""
        return self.source_id == self.destination_id
