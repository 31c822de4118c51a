"""The source's copy of a prompt's K/V: given up only on proof of publication or after a fence."""

from enum import StrEnum

from baton.core.machine import Table


class CopyState(StrEnum):
    """COMPUTING and HELD pin the blocks; FENCING pins them until all I/O has ended."""

    COMPUTING = "COMPUTING"
    HELD = "HELD"
    RELEASED = "RELEASED"
    FENCING = "FENCING"
    FREED = "FREED"


class CopyInput(StrEnum):
    """What moves a copy on."""

    SEAL = "seal"
    RELEASE = "release"
    ABORT = "abort"
    QUIESCE = "quiesce"


_S, _I = CopyState, CopyInput

SOURCE_COPY = Table(
    "source copy",
    _S.COMPUTING,
    {
        (_S.COMPUTING, _I.SEAL): _S.HELD,
        (_S.COMPUTING, _I.ABORT): _S.FENCING,
        (_S.HELD, _I.RELEASE): _S.RELEASED,
        (_S.HELD, _I.ABORT): _S.FENCING,
        (_S.FENCING, _I.QUIESCE): _S.FREED,
    },
)
