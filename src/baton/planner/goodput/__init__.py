"""The highest rate whose requests still meet their targets, from fast simulations, with intervals.

One draw of requests serves every rate and every deployment that is compared (common random
numbers); several draws give the interval.
"""

from baton.planner.goodput.answer import Contract, GoodputAnswer, Probe, SeedAnswer
from baton.planner.goodput.attained import Attained, Met, Rule, TpotDefinition, attain, met
from baton.planner.goodput.draws import Arrivals, Draws, Lengths, draw
from baton.planner.goodput.find import find_goodput
from baton.planner.goodput.precision import RequestCount

__all__ = [
    "Arrivals",
    "Attained",
    "Contract",
    "Draws",
    "GoodputAnswer",
    "Lengths",
    "Met",
    "Probe",
    "RequestCount",
    "Rule",
    "SeedAnswer",
    "TpotDefinition",
    "attain",
    "draw",
    "find_goodput",
    "met",
]
