"""Two reductions that keep every local step and every terminal state; why they may be made.

**Stale messages.** A worker that has died leaves messages of its first life in its lanes, and its
peers go on sending to it for a while. Where the receiver meets such a message with its fence (it is
addressed to an older life of the receiver, or the receiver knows that the sender's life is over and
cannot come to believe in it again), receiving it changes nothing, now or later, so it is taken out
of the lane at once. That it changes nothing is not believed: the receiver's node is asked, and
`require_no_effect` fails the search if it does anything.

**Router first.** The router acts only on what it receives, and it meets the workers only in lanes.
Take a state in which no crash and no early time step may happen any more, a message of the decode
worker waits at the router, and either one of the prefill worker waits too or no Prefill is on its
way there. (A prefill worker speaks to the router only to answer a Prefill; `require_answer` fails
the search if it ever does otherwise.) Until the router moves, nothing can add a choice to what it
receives next, and what the workers do meanwhile commutes with what the router does: they take from
other lanes and append behind the waiting messages. So in every run the first step of the router can
be moved to the front, and only the router's steps are explored here, with loss and repetition of
what it receives. (That these draw on one budget does no harm: what a run spends elsewhere it does
not spend on this step, in either order.) The set is persistent in the sense of partial-order
reduction, and each step of the router consumes a message and sends it none, so no worker is
ignored for ever. The checks look at one step of one process, at the two workers together (between
them nothing is reduced) and at terminal states, so none of them can tell the orders apart.
"""

from baton.core.events import Event, Received
from baton.core.messages import Prefill
from baton.sim.explore.process import Outcome
from baton.sim.explore.setup import NAMES, PREFILL
from baton.sim.explore.store import Lanes
from baton.sim.explore.violation import require
from baton.sim.explore.wires import FROM_DECODE, FROM_PREFILL, Wires

ROUTER_LANES = (FROM_PREFILL, FROM_DECODE)


class Reduction:
    """Answers from lanes alone, remembered by the lane's number."""

    def __init__(self, wires: Wires, lanes: Lanes) -> None:
        self._wires = wires
        self._lanes = lanes
        self._prefills: dict[int, bool] = {}
        self._living: dict[int, int] = {}

    def router_goes_first(self, from_prefill: int, to_prefill: int) -> bool:
        """True when only the router needs to move, given that the decode worker spoke to it."""
        return bool(from_prefill) or not self._brings_prefill(to_prefill)

    def _brings_prefill(self, lane: int) -> bool:
        found = self._prefills.get(lane)
        if found is None:
            found = any(map(self._wires.is_prefill, self._lanes.items(lane)))
            self._prefills[lane] = found
        return found

    def without_first_life(self, lane: int) -> int:
        """A lane without what the first life of its sender left in it."""
        found = self._living.get(lane)
        if found is None:
            found = 0
            for number in self._lanes.items(lane):
                if not self._wires.is_of_first_life(number):
                    found = self._lanes.push(found, number)
            self._living[lane] = found
        return found

    def first_life(self, lane: int) -> tuple[int, ...]:
        """What `without_first_life` takes out."""
        return tuple(filter(self._wires.is_of_first_life, self._lanes.items(lane)))


def require_no_effect(before: int, outcome: Outcome, text: str) -> None:
    """A stale message that does something breaks the fence, and this reduction with it."""
    same = outcome.state == before and not outcome.sends and not outcome.quiet
    require(same, f"a stale message has an effect: {text}")


def require_answer(event: Event, outcome: Outcome) -> None:
    """Fail the search when a prefill worker speaks to the router of its own accord."""
    if isinstance(event, Received) and isinstance(event.envelope.message, Prefill):
        return
    if any(lane == FROM_PREFILL for lane, _ in outcome.sends):
        raise AssertionError(f"a reduction is unsound: {NAMES[PREFILL]} spoke unasked")
