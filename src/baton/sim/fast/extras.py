"""What only some deployments need: prefixes that are kept, and routes that ask for more."""

from typing import NamedTuple

from baton.sim.fast.prefixes import Prefixes
from baton.sim.fast.routes_fleet import Fleet
from baton.sim.fast.state import Floats, Ints

NUM_ENDS = 64


class Extras(NamedTuple):
    """None in its place compiles to a loop without any of it."""

    prefixes: Prefixes
    fleet: Fleet
    draws: Ints
    """A number of each request, for random routes."""
    depths: Ints
    """Scratch: leading blocks of a prompt at each worker."""
    ends: Floats
    """Of the latest ends, how long each decoded and how many tokens it produced."""
