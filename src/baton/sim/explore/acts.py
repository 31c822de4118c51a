"""What can happen, by kind, and what the faults among it cost."""

from enum import IntEnum


class Act(IntEnum):
    """Kinds of action; an action is `kind * 16 + lane, side or request`."""

    RECEIVE = 0
    ENGINE = 1
    PLANE = 2
    TIME = 3
    CRASH = 4
    DUPLICATE = 5
    DROP = 6
    RETRY = 7
    CANCEL = 8
    GIVE_UP = 9
    LAND = 10
    END = 11


FAULTS = (Act.CRASH, Act.DUPLICATE, Act.DROP, Act.RETRY, Act.CANCEL, Act.GIVE_UP)
"""Kinds of action that have a budget, two bits each in this order; then the budget of all."""
BITS = {kind: 3 << 2 * place for place, kind in enumerate(FAULTS)}
MOVES_ALL = BITS[Act.CRASH] | BITS[Act.RETRY] | BITS[Act.GIVE_UP]
ALL_AT = 2 * len(FAULTS)
COST = {kind: (1 << 2 * place) + (1 << ALL_AT) for place, kind in enumerate(FAULTS)}
