"""What a search found, in words: the counts, or the shortest way to a broken promise."""

from collections.abc import Iterator

from baton.sim.explore.acts import Act
from baton.sim.explore.model import LANES_AT, NOW_AT, Model, State
from baton.sim.explore.search import Counterexample, Result
from baton.sim.explore.setup import NAMES, Setup
from baton.sim.explore.violation import Violation
from baton.sim.explore.wires import LANE_NAMES, NUM_LANES


def title(setup: Setup) -> str:
    """What is explored."""
    crashes, duplicates, drops, retries, cancels, give_ups, faults = setup.budgets
    return (
        f"{setup.direction}: {setup.num_requests} requests, {setup.num_chunks} chunks per "
        f"transfer; in one run at most {crashes} crashes, {duplicates} repeated messages, "
        f"{drops} lost messages, {retries} early retries, {cancels} cancels, "
        f"{give_ups} workers given up, "
        f"{faults} of these together"
    )


def lines(result: Result, model: Model) -> Iterator[str]:
    """A result in lines."""
    rate = result.num_states / max(result.cpu_seconds, 1e-9)
    looked_up = result.num_lookups / max(1, result.num_lookups + result.num_node_steps)
    yield (
        f"  {result.num_states:,} states, {result.num_transitions:,} transitions, "
        f"depth {result.depth}, {result.num_terminal:,} terminal states"
    )
    for ends, count in sorted(result.ends.items()):
        yield f"  {count:,} terminal: {ends}"
    yield (
        f"  {result.seconds:.1f} s, {result.cpu_seconds:.1f} s of one core, {rate:,.0f} states/s; "
        f"nodes ran {result.num_node_steps:,} steps, {looked_up:.2%} of all steps were known"
    )
    if result.num_checks:
        yield f"  {result.num_checks:,} known steps were run again from another way: all equal"
    if result.counterexample is not None:
        yield from transcript(model, result.counterexample)
    elif result.exhausted:
        yield "  exhausted: every interleaving was explored and every promise held"
    else:
        yield "  NOT exhausted: stopped before the end; no promise was broken so far"


def transcript(model: Model, found: Counterexample) -> Iterator[str]:
    """Who got what, step by step, and what it sent; the last step breaks the promise."""
    yield f"  BROKEN: {found.text}"
    yield f"  the shortest way there, {len(found.actions)} steps after all requests were submitted:"
    state = model.initial()
    for number, action in enumerate(found.actions, start=1):
        yield f"  {number:3}. {describe(model, state, action)}"
        try:
            following = model.apply(state, action)
        except Violation:
            break
        for lane in range(NUM_LANES):
            for item in _appended(model, state, following, lane):
                yield f"         {LANE_NAMES[lane]}: {model.wires.describe(item)}"
        state = following
    yield f"  BROKEN: {found.text}"


def describe(model: Model, state: State, action: int) -> str:
    """One action in words."""
    kind, place = divmod(action, 16)
    if kind == Act.ENGINE:
        worker = model.hosts[place].states.values[state[place]]
        layer = worker.batch is not None and worker.batch.report_layers
        stage = worker.stage
        done = not layer or stage == model.setup.num_chunks
        return f"{NAMES[place]} engine: {'batch is done' if done else f'layer {stage} is ready'}"
    if kind == Act.PLANE:
        order = model.hosts[place].head(state[place])
        chunk = getattr(order, "chunk", None)
        about = f"chunk {chunk.chunk_id}" if chunk is not None else ""
        about = f"{about} of reservation {order.reservation_id:#x}".strip()
        return f"{NAMES[place]} data plane: {type(order).__name__} {about}"
    if kind in (Act.TIME, Act.RETRY):
        early = "" if kind == Act.TIME else " although there is work to do"
        return f"time passes from {state[NOW_AT] / 1000:g} ms to the next deadline{early}"
    if kind == Act.CANCEL:
        return f"the client of r{place} is gone"
    if kind == Act.GIVE_UP:
        return f"{NAMES[place]} IS GIVEN UP; its next life says hello"
    if kind == Act.LAND:
        return "the last write of the life that was given up lands"
    if kind == Act.END:
        return "the life that was given up is known to have ended"
    if kind == Act.CRASH:
        return f"{NAMES[place]} dies and starts again"
    first = model.lanes.items(state[LANES_AT + place])[0]
    words = {Act.RECEIVE: "", Act.DUPLICATE: " (and will once more)", Act.DROP: " IS LOST"}
    return f"{LANE_NAMES[place]} brings {model.wires.describe(first)}{words[Act(kind)]}"


def _appended(model: Model, before: State, after: State, lane: int) -> tuple[int, ...]:
    """What a step put into a lane."""
    old = model.lanes.items(before[LANES_AT + lane])
    new = model.lanes.items(after[LANES_AT + lane])
    for kept in (old, old[1:], ()):
        if new[: len(kept)] == kept:
            return new[len(kept) :]
    return new
