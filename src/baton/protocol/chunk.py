"""Chunk-level machine (specification 0x06A): moved and visible are different states."""

from enum import StrEnum

from baton.core.machine import Table


class ChunkState(StrEnum):
    """Where one chunk's bytes are."""

    DECLARED = "DECLARED"
    CREDIT_ACQUIRED = "CREDIT_ACQUIRED"
    SENT = "SENT"
    RECEIVED = "RECEIVED"
    DEVICE_VISIBLE = "DEVICE_VISIBLE"
    CANCELLED = "CANCELLED"


class ChunkInput(StrEnum):
    """What moves a chunk on."""

    ACQUIRE = "acquire credit"
    SEND = "send"
    RECEIVE = "receive"
    SEE = "become visible"
    CANCEL = "cancel"


_S, _I = ChunkState, ChunkInput

CHUNK = Table(
    "chunk",
    _S.DECLARED,
    {
        (_S.DECLARED, _I.ACQUIRE): _S.CREDIT_ACQUIRED,
        (_S.CREDIT_ACQUIRED, _I.SEND): _S.SENT,
        (_S.SENT, _I.RECEIVE): _S.RECEIVED,
        (_S.RECEIVED, _I.SEE): _S.DEVICE_VISIBLE,
        (_S.DECLARED, _I.CANCEL): _S.CANCELLED,
        (_S.CREDIT_ACQUIRED, _I.CANCEL): _S.CANCELLED,
        (_S.SENT, _I.CANCEL): _S.CANCELLED,
        (_S.RECEIVED, _I.CANCEL): _S.CANCELLED,
    },
)
