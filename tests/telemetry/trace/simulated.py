"""What the nodes trace in a simulated run under random faults, as lines of one file."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

import baton
from baton.core.effects import Effect, Trace
from baton.core.events import Event
from baton.nodes.context import ROUTER
from baton.sim.draw import draw_plan
from baton.sim.observer import Observer
from baton.sim.vopr import run_plan
from baton.sim.worker import SimWorker
from baton.sim.world import World
from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.reading import Lines, ReadTrace, read_trace

SOURCE = Path(baton.__file__).parent


class Recorder(Observer):
    """Keeps every trace effect with the time of the timeline, which all places share."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def handled_by_router(self, world: World, event: Event, effects: Sequence[Effect]) -> None:
        self._keep(world, ROUTER, effects)

    def handled(self, worker: SimWorker, event: Event, effects: Sequence[Effect]) -> None:
        self._keep(worker.world, worker.worker_id, effects)

    def _keep(self, world: World, place: str, effects: Sequence[Effect]) -> None:
        self.events += [
            TraceEvent(
                at_us=world.timeline.now_us,
                place=place,
                name=effect.name,
                request_id=effect.request_id,
                generation=effect.generation,
                data=effect.data,
            )
            for effect in effects
            if isinstance(effect, Trace)
        ]


def events_of_seed(seed: int) -> list[TraceEvent]:
    recorder = Recorder()
    outcome = run_plan(draw_plan(seed), recorder)
    assert outcome.clean, outcome
    return recorder.events


def lines_of(events: Sequence[TraceEvent], name: str = "trace.jsonl") -> Lines:
    return Lines(name, msgspec.json.Encoder().encode_lines(events))


def read(events: Sequence[TraceEvent]) -> ReadTrace:
    return read_trace([lines_of(events)])
