"""Request-level transfer transaction (specification 0x06A), destination's view."""

from enum import StrEnum

from baton.core.machine import Table


class TransferState(StrEnum):
    """Only PUBLISHED may be decoded. ABORTING still owns blocks and credits."""

    PLANNED = "PLANNED"
    RESERVED = "RESERVED"
    TRANSFERRING = "TRANSFERRING"
    VALIDATED = "VALIDATED"
    PUBLISHED = "PUBLISHED"
    ABORTING = "ABORTING"
    ABORTED = "ABORTED"
    REJECTED = "REJECTED"


class TransferInput(StrEnum):
    """What moves a transfer on."""

    RESERVE = "reserve"
    REJECT = "reject"
    START = "start"
    VALIDATE = "validate"
    PUBLISH = "publish"
    ABORT = "abort"
    QUIESCE = "quiesce"


_S, _I = TransferState, TransferInput

TRANSFER = Table(
    "transfer",
    _S.PLANNED,
    {
        (_S.PLANNED, _I.RESERVE): _S.RESERVED,
        (_S.PLANNED, _I.REJECT): _S.REJECTED,
        (_S.RESERVED, _I.START): _S.TRANSFERRING,
        (_S.RESERVED, _I.ABORT): _S.ABORTING,
        (_S.TRANSFERRING, _I.VALIDATE): _S.VALIDATED,
        (_S.TRANSFERRING, _I.ABORT): _S.ABORTING,
        (_S.VALIDATED, _I.PUBLISH): _S.PUBLISHED,
        (_S.VALIDATED, _I.ABORT): _S.ABORTING,
        (_S.ABORTING, _I.QUIESCE): _S.ABORTED,
    },
)
