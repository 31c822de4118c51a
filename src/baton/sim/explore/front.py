"""The router's side of the model: its node, and what its clients were given."""

from typing import NamedTuple

from baton.core.delivery import Delivery, Failed, Finished, Tokens
from baton.core.effects import Deliver, Effect, Send
from baton.core.events import Cancelled, Event, Received, Tick
from baton.core.messages import Envelope
from baton.nodes.context import ROUTER
from baton.nodes.router import Router
from baton.sim.arithmetic import Truth
from baton.sim.explore.process import Kind, Outcome, Process
from baton.sim.explore.store import Nodes, Numbered
from baton.sim.explore.violation import require
from baton.sim.explore.wires import LANE_OF, Wires


class Stream(NamedTuple):
    """What one client has: so many right tokens, and how its request ended, if it did."""

    num_tokens: int = 0
    end: str = ""
    cancelled: bool = False


class FrontState(NamedTuple):
    """The router at one moment."""

    node: int
    streams: tuple[Stream, ...]


class RouterFacts(NamedTuple):
    """What the model needs to know of a router node."""

    deadline_us: int | None
    held: str
    known: dict[str, int]
    """The epoch of each worker that the router holds for alive."""


class Front(Process[Router]):
    """Runs the router node and checks every delivery against the right answer."""

    def __init__(self, wires: Wires, truths: dict[str, Truth], check_every: int) -> None:
        super().__init__(ROUTER, Nodes(_inspect, keep_others=check_every > 0), check_every)
        self._wires = wires
        self._truths = truths
        self._order = {request_id: index for index, request_id in enumerate(truths)}
        self.states: Numbered[FrontState] = Numbered()

    def start(self, node: Router) -> int:
        """The number of the first state."""
        streams = tuple(Stream() for _ in self._order)
        return self.states.number(FrontState(self.nodes.freeze(node), streams))

    def node_of(self, state: int) -> int:
        return self.states.values[state].node

    def facts(self, state: int) -> RouterFacts:
        """What is known of the node of a state."""
        found: RouterFacts = self.nodes.facts[self.node_of(state)]
        return found

    def run(self, state: int, kind: Kind, argument: int, now_us: int, node: Router) -> Outcome:
        streams = list(self.states.values[state].streams)
        event: Event = Tick()
        if kind is Kind.CANCEL:
            event = Cancelled(request_id=list(self._order)[argument], reason="disconnect")
            streams[argument] = streams[argument]._replace(cancelled=True)
        elif kind is not Kind.TICK:
            item = self._wires.carried.values[argument]
            event = Received(envelope=item) if isinstance(item, Envelope) else item
        effects = self.handle(node, event, now_us)
        sends = []
        for effect in effects:
            if isinstance(effect, Deliver):
                index = self._order[effect.request_id]
                streams[index] = self._deliver(effect, streams[index])
            elif isinstance(effect, Send):
                sends.append(self._send(effect))
        following = FrontState(self.nodes.freeze(node), tuple(streams))
        return Outcome(self.states.number(following), tuple(sends))

    def _send(self, effect: Effect) -> tuple[int, int]:
        assert isinstance(effect, Send)
        envelope = Envelope(sender_id=ROUTER, sender_epoch=0, message=effect.message)
        return LANE_OF[ROUTER, effect.to], self._wires.number(envelope)

    def _deliver(self, effect: Deliver, stream: Stream) -> Stream:
        request_id, delivery = effect.request_id, effect.delivery
        require(not stream.end, f"{request_id} got {type(delivery).__name__} after its end")
        return deliver(request_id, delivery, stream, self._truths[request_id])


def deliver(request_id: str, delivery: Delivery, stream: Stream, truth: Truth) -> Stream:
    """What a client has after one more delivery, if that was the right one."""
    num_tokens, end, cancelled = stream
    if isinstance(delivery, Tokens):
        for token in delivery.tokens:
            require(
                token.index == num_tokens, f"{request_id} got token {token.index} at {num_tokens}"
            )
            right = num_tokens < len(truth.outputs) and token.token_id == truth.outputs[num_tokens]
            require(right, f"{request_id} got token id {token.token_id} at index {num_tokens}")
            num_tokens += 1
    elif isinstance(delivery, Finished) and delivery.finish_reason == "cancelled":
        require(cancelled, f"{request_id} ended as cancelled, and nobody cancelled it")
        end = "cancelled"
    elif isinstance(delivery, Finished):
        full = num_tokens == len(truth.outputs)
        require(full, f"{request_id} finished with {num_tokens} tokens")
        right = delivery.finish_reason == truth.finish_reason
        require(right, f"{request_id} finished by {delivery.finish_reason!r}")
        end = "finished"
    elif isinstance(delivery, Failed):
        end = f"failed: {delivery.code}"
    return Stream(num_tokens, end, cancelled)


def _inspect(node: Router) -> RouterFacts:
    held = [f"{len(node.records)} open requests"] if node.records else []
    held += [f"{node.num_waiting} waiting requests"] if node.num_waiting else []
    for view in node.fleet:
        if view.prefill_tokens or view.decode_blocks:
            held.append(f"an account of {view.info.worker_id}")
    known = {view.info.worker_id: view.info.epoch for view in node.fleet}
    return RouterFacts(node.next_deadline(), ", ".join(held), known)
