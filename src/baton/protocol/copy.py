"""The router's half of a copy of history between two workers (transfer_with_insert, 0x09B)."""

from enum import StrEnum

from baton.core.machine import Table


class HistoryCopyState(StrEnum):
    """RESERVING asks the destination for room, MOVING lets the source send."""

    RESERVING = "RESERVING"
    MOVING = "MOVING"
    INSERTED = "INSERTED"
    GIVEN_UP = "GIVEN_UP"


class HistoryCopyInput(StrEnum):
    """What moves a copy on. A copy is tried once: whoever wanted it recomputes."""

    GRANT = "grant"
    INSERT = "insert"
    GIVE_UP = "give_up"


_S, _I = HistoryCopyState, HistoryCopyInput

HISTORY_COPY = Table(
    "history copy",
    _S.RESERVING,
    {
        (_S.RESERVING, _I.GRANT): _S.MOVING,
        (_S.RESERVING, _I.INSERT): _S.INSERTED,
        (_S.RESERVING, _I.GIVE_UP): _S.GIVEN_UP,
        (_S.MOVING, _I.INSERT): _S.INSERTED,
        (_S.MOVING, _I.GIVE_UP): _S.GIVEN_UP,
    },
)
