"""The global state and everything that can happen in it.

A state is fourteen integers: the numbered states of router and workers, the time, the faults that
are left, who was given up, and the numbered lanes. What can happen: the first message of a lane is
received, the engine or the plane of a worker makes a step, a fault, what follows from a worker that
was given up, or time passes to the next deadline.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from baton.core.effects import MoveChunk
from baton.core.events import ChunkArrived, Submitted, WorkerLost
from baton.core.messages import Envelope, Hello
from baton.sim.explore.acts import ALL_AT, BITS, COST, MOVES_ALL, Act
from baton.sim.explore.front import Front
from baton.sim.explore.ghost import ENDED, FIRST, NOBODY, Ghosts
from baton.sim.explore.host import Host, Moved, layers_of
from baton.sim.explore.memory import sum_of
from baton.sim.explore.process import Kind, Outcome, Process
from baton.sim.explore.reduction import (
    ROUTER_LANES,
    Reduction,
    require_no_effect,
)
from baton.sim.explore.setup import DECODE, NAMES, PREFILL, Setup
from baton.sim.explore.store import Lanes
from baton.sim.explore.violation import Violation, require
from baton.sim.explore.wires import (
    CONTROL,
    FROM_DECODE,
    FROM_PREFILL,
    INTO,
    NOTIFY,
    NUM_LANES,
    RECEIVERS,
    SENDERS,
    SUPERVISOR,
    TO_PREFILL,
    Wires,
)

State = tuple[int, ...]
ROUTER_AT, NOW_AT, BUDGETS_AT, GHOST_AT, LANES_AT = 2, 3, 4, 5, 6
STATE_SIZE = LANES_AT + NUM_LANES
LONGEST_US = 12_000_000
"""Nothing may be open or held after so much time; every deadline is far shorter."""


_KINDS = (*(Kind.RECEIVE for _ in CONTROL), Kind.ARRIVE, Kind.LOST)


class Model:
    """The processes and their lanes; every `check_every`-th look-up is replayed, 0 for none."""

    def __init__(self, setup: Setup, check_every: int = 0, *, reduce: bool = True) -> None:
        self.setup = setup
        self._reduce = reduce
        truths = setup.truths()
        self.wires = Wires()
        self.lanes = Lanes()
        self.front = Front(self.wires, truths, check_every)
        self.hosts = tuple(
            Host(side, setup, self.wires, truths, check_every) for side in (PREFILL, DECODE)
        )
        self.ghosts = Ghosts(self.hosts)
        self.processes: tuple[Process[Any], ...] = (*self.hosts, self.front)
        self._budgets = sum(n << 2 * place for place, n in enumerate(setup.budgets))
        self.steps = tuple(process.step for process in self.processes)
        self._own: tuple[dict[int, tuple[int, ...]], ...] = ({}, {})
        self._reduction = Reduction(self.wires, self.lanes)
        self._moves: dict[tuple[int, int, int, int], tuple[Outcome, int, int]] = {}
        self._next_times: dict[State, int] = {}

    # -- the first state -----------------------------------------------------------------------

    def initial(self) -> State:
        """Both workers have joined and know each other; every request was just submitted."""
        router = self.front.start(self.setup.router())
        sides = [host.fresh(1, 0) for host in self.hosts]
        state = (*sides, router, 0, self._budgets, NOBODY, *(0,) * NUM_LANES)
        for side, lane in ((PREFILL, FROM_PREFILL), (DECODE, FROM_DECODE)):
            state = self._push(state, lane, self.wires.number(self.setup.hello(side, 1)))
        while any(state[LANES_AT:]):
            lane = next(lane for lane in range(NUM_LANES) if state[LANES_AT + lane])
            state = self.apply(state, Act.RECEIVE * 16 + lane)
        for request in self.setup.requests():
            number = self.wires.number(Submitted(request=request))
            state = self._run(state, ROUTER_AT, Kind.LOST, number)
        return state

    def _push(self, state: State, lane: int, number: int) -> State:
        at = LANES_AT + lane
        return (*state[:at], self.lanes.push(state[at], number), *state[at + 1 :])

    # -- what can happen -----------------------------------------------------------------------

    def actions(self, state: State) -> list[int]:
        """Everything that can happen in a state; nothing in a terminal one."""
        budgets = state[BUDGETS_AT]
        heard = state[LANES_AT + FROM_DECODE]
        calm = not budgets & MOVES_ALL and state[GHOST_AT] < FIRST
        if heard and calm and self._router_goes_first(state):
            return self._router_actions(state)
        found = [action for action, lane in enumerate(state[LANES_AT:]) if lane]
        found += self._own_actions(PREFILL, state[PREFILL])
        found += self._own_actions(DECODE, state[DECODE])
        if state[GHOST_AT] >= FIRST:
            found.append(Act.END * 16)
            if self.ghosts.may_land(state[GHOST_AT], state[DECODE]):
                found.append(Act.LAND * 16)
        if not found and self._next_time(state):
            found.append(Act.TIME * 16)
        if found and budgets:
            found += self._faults(state, (*CONTROL, NOTIFY))
        return found

    def _own_actions(self, side: int, at: int) -> tuple[int, ...]:
        """What the engine and the plane of a worker can do."""
        found = self._own[side].get(at)
        if found is None:
            worker = self.hosts[side].states.values[at]
            engine = (Act.ENGINE * 16 + side,) if worker.batch is not None else ()
            plane = (Act.PLANE * 16 + side,) if worker.plane else ()
            found = self._own[side][at] = engine + plane
        return found

    def _router_goes_first(self, state: State) -> bool:
        from_prefill, to_prefill = state[LANES_AT + FROM_PREFILL], state[LANES_AT + TO_PREFILL]
        return self._reduce and self._reduction.router_goes_first(from_prefill, to_prefill)

    def _router_actions(self, state: State) -> list[int]:
        lanes = [lane for lane in (*ROUTER_LANES, SUPERVISOR) if state[LANES_AT + lane]]
        found = [Act.RECEIVE * 16 + lane for lane in lanes]
        if state[BUDGETS_AT]:
            found += self._faults(state, ROUTER_LANES)
        return found

    def _faults(self, state: State, lanes: tuple[int, ...]) -> Iterator[int]:
        budgets = state[BUDGETS_AT]
        if budgets & BITS[Act.CRASH]:
            yield from (Act.CRASH * 16 + side for side in (PREFILL, DECODE))
        if budgets & BITS[Act.GIVE_UP] and state[GHOST_AT] == NOBODY:
            yield from (Act.GIVE_UP * 16 + side for side in (PREFILL, DECODE))
        if budgets & BITS[Act.CANCEL]:
            for number, stream in enumerate(self.front.states.values[state[ROUTER_AT]].streams):
                if not stream.end and not stream.cancelled:
                    yield Act.CANCEL * 16 + number
        for lane in lanes:
            if not state[LANES_AT + lane]:
                continue
            if budgets & BITS[Act.DUPLICATE]:
                yield Act.DUPLICATE * 16 + lane
            if budgets & BITS[Act.DROP] and self._may_be_lost(lane, state[LANES_AT + lane]):
                yield Act.DROP * 16 + lane
        if budgets & BITS[Act.RETRY] and self._next_time(state):
            yield Act.RETRY * 16

    def _may_be_lost(self, lane: int, items: int) -> bool:
        """Not what the data plane says; not a hello: that is a start that failed, not a loss."""
        if lane == NOTIFY:
            return False
        item = self.wires.carried.values[self.lanes.pop(items)[0]]
        return not (isinstance(item, Envelope) and isinstance(item.message, Hello))

    def _next_time(self, state: State) -> int:
        """The next deadline of any node, or 0 when no node waits for time."""
        key = state[:BUDGETS_AT]
        found = self._next_times.get(key)
        if found is None:
            given = [host.deadline_us(state[side]) for side, host in enumerate(self.hosts)]
            given.append(self.front.facts(state[ROUTER_AT]).deadline_us)
            deadlines = [deadline_us for deadline_us in given if deadline_us is not None]
            found = max(state[NOW_AT] + 1, min(deadlines)) if deadlines else 0
            self._next_times[key] = found
        return found

    # -- what it does --------------------------------------------------------------------------

    def apply(self, state: State, action: int) -> State:
        """The state after an action. Raises Violation."""
        if action < NUM_LANES:  # most are; Act.RECEIVE is 0
            return self._receive(state, action, keep=False)
        kind, place = divmod(action, 16)
        if kind == Act.ENGINE:
            return self._run(state, place, Kind.ENGINE, 0)
        if kind == Act.PLANE:
            return self._plane(state, place)
        if kind in (Act.TIME, Act.RETRY):
            state = self._pay(state, kind) if kind == Act.RETRY else state
            return self._tick(state)
        if kind in (Act.LAND, Act.END):
            return self._haunt(state, kind)
        state = self._pay(state, kind)
        if kind in (Act.CRASH, Act.GIVE_UP):
            return self._crash(state, place, ended=kind == Act.CRASH)
        if kind == Act.CANCEL:
            return self._run(state, ROUTER_AT, Kind.CANCEL, place)
        if kind == Act.DUPLICATE:
            return self._receive(state, place, keep=True)
        at = LANES_AT + place
        return (*state[:at], self.lanes.pop(state[at])[1], *state[at + 1 :])

    def _pay(self, state: State, kind: int) -> State:
        left = state[BUDGETS_AT] - COST[Act(kind)]
        if not left >> ALL_AT:
            left = 0  # the last fault of this run
        return (*state[:BUDGETS_AT], left, *state[GHOST_AT:])

    def _receive(self, state: State, lane: int, *, keep: bool) -> State:
        at = LANES_AT + lane
        number, rest = self.lanes.pop(state[at])
        if not keep:
            state = (*state[:at], rest, *state[at + 1 :])
        return self._run(state, RECEIVERS[lane], _KINDS[lane], number)

    def _run(self, state: State, at: int, kind: Kind, argument: int) -> State:
        outcome = self.steps[at](state[at], kind, argument, state[NOW_AT])
        return self._after(state, at, outcome)

    def _after(self, state: State, at: int, outcome: Outcome) -> State:
        found = list(state)
        found[at] = outcome.state
        reduce = self._reduce and found[GHOST_AT] == NOBODY  # the word of a ghost is heard
        if found[BUDGETS_AT] != self._budgets and reduce and self._has_crashed(found):
            self._send_living(found, outcome)
            self._forget_first_life(found, at)
        else:
            for lane, number in outcome.sends:
                found[LANES_AT + lane] = self.lanes.push(found[LANES_AT + lane], number)
        if outcome.quiet:
            self._check_quiet(state, outcome.quiet)
        return tuple(found)

    def _has_crashed(self, state: Sequence[int]) -> bool:
        first = self.hosts[PREFILL].states.values[state[PREFILL]].epoch == 1
        return not first or self.hosts[DECODE].states.values[state[DECODE]].epoch > 1

    def _send_living(self, found: list[int], outcome: Outcome) -> None:
        """Append what is sent, except to a life that is over."""
        for lane, number in outcome.sends:
            to = RECEIVERS[lane]
            if to != ROUTER_AT:
                epoch = self.hosts[to].epoch(found[to])
                if epoch > 1 and self.wires.is_stale_for(number, NAMES[to], epoch):
                    self._require_no_effect(found, to, number)
                    continue
            found[LANES_AT + lane] = self.lanes.push(found[LANES_AT + lane], number)

    def _forget_first_life(self, found: list[int], at: int) -> None:
        """Take out what a dead first life left for a receiver that knows that it is dead."""
        if at != ROUTER_AT and self.hosts[at].epoch(found[at]) > 1:
            return  # it was born after that life and may still hear of it
        for side, lane in SENDERS[at]:
            left = found[LANES_AT + lane]
            if not left or self.hosts[side].epoch(found[side]) == 1:
                continue
            living = self._reduction.without_first_life(left)
            if living != left and self.processes[at].facts(found[at]).known.get(NAMES[side]) != 1:
                for number in self._reduction.first_life(left):
                    self._require_no_effect(found, at, number)
                found[LANES_AT + lane] = living

    def _require_no_effect(self, found: list[int], at: int, number: int) -> None:
        outcome = self.processes[at].step(found[at], Kind.RECEIVE, number, found[NOW_AT])
        require_no_effect(found[at], outcome, self.wires.describe(number))

    def _check_quiet(self, state: State, quiet: tuple[int, ...]) -> None:
        """Blocks were given back: no peer may still be writing to them."""
        late = self.ghosts.may_write(state[GHOST_AT], state[DECODE], quiet)
        require(not late, f"reservations {quiet} are given back while a lost source may write")
        epoch = self.hosts[DECODE].states.values[state[DECODE]].epoch
        for order in self.hosts[PREFILL].states.values[state[PREFILL]].plane:
            writes = isinstance(order, MoveChunk) and order.write and order.peer_epoch == epoch
            require(
                not (writes and order.reservation_id in quiet),
                f"reservation {order.reservation_id:#x} is given back while its source writes",
            )

    def _plane(self, state: State, side: int) -> State:
        host = self.hosts[side]
        order = host.head(state[side])
        if not isinstance(order, MoveChunk):
            return self._run(state, side, Kind.PLANE, 0)
        peer = 1 - side
        key = (side, state[side], state[peer], state[NOW_AT])
        found = self._moves.get(key)
        if found is None:
            found = self._moves[key] = self._move(state, side, order)
        outcome, after_peer, arrived = found
        state = (*state[:peer], after_peer, *state[peer + 1 :])
        if arrived >= 0:
            state = self._push(state, NOTIFY, arrived)
        return self._after(state, side, outcome)

    def _move(self, state: State, side: int, order: MoveChunk) -> tuple[Outcome, int, int]:
        """Move a chunk: its outcome here, the peer's state, the peer's notification or -1."""
        host, peer = self.hosts[side], self.hosts[1 - side]
        after_peer, arrived = state[1 - side], -1
        layers = layers_of(order)
        if peer.states.values[after_peer].epoch != order.peer_epoch:
            moved = Moved("peer lost", 0, ())
        elif order.write:
            data = host.read(state[side], layers, order.local_blocks)
            after_peer = peer.write(after_peer, order, data)
            moved = Moved("", sum_of(data), ())
            arrived = self._arrived(host, state[side], order, moved.checksum)
        else:
            data = peer.read(after_peer, layers, order.remote_blocks)
            moved = Moved("", sum_of(data), data)
        argument = host.moves.number(moved)
        return host.step(state[side], Kind.PLANE, argument, state[NOW_AT]), after_peer, arrived

    def _arrived(self, host: Host, at: int, order: MoveChunk, checksum: int) -> int:
        return self.wires.number(
            ChunkArrived(
                source_id=host.name,
                source_epoch=host.states.values[at].epoch,
                reservation_id=order.reservation_id,
                chunk_id=order.chunk.chunk_id,
                nbytes=order.chunk.nbytes,
                checksum=checksum,
            )
        )

    def _haunt(self, state: State, kind: int) -> State:
        """The last write of a life that was given up lands, or its end becomes known."""
        value, decode_at = state[GHOST_AT], state[DECODE]
        if kind == Act.LAND:
            value, decode_at = self.ghosts.land(value, decode_at)
            state = (*state[:DECODE], decode_at, *state[DECODE + 1 :])
            return (*state[:GHOST_AT], value, *state[LANES_AT:])
        ghost = self.ghosts.of(value)
        assert ghost is not None
        lost = WorkerLost(worker_id=NAMES[ghost.side], epoch=ghost.epoch)
        state = (*state[:GHOST_AT], ENDED, *state[LANES_AT:])
        return self._push(state, SUPERVISOR, self.wires.number(lost))

    def _crash(self, state: State, side: int, *, ended: bool) -> State:
        """A life is over and the next one says hello; what it had sent may still arrive.

        Unless it has `ended` its process is only out of reach, and may still write.
        """
        host = self.hosts[side]
        epoch = host.states.values[state[side]].epoch
        found = list(state)
        if not ended:
            found[GHOST_AT] = self.ghosts.born(side, state[side])
        found[side] = host.fresh(epoch + 1, state[NOW_AT])
        for lane in INTO[side]:
            if lane != NOTIFY or side == DECODE:
                found[LANES_AT + lane] = 0
        lost = WorkerLost(worker_id=NAMES[side], epoch=epoch, ended=ended)
        state = self._push(tuple(found), SUPERVISOR, self.wires.number(lost))
        hello = self.wires.number(self.setup.hello(side, epoch + 1))
        return self._push(state, (FROM_PREFILL, FROM_DECODE)[side], hello)

    def _tick(self, state: State) -> State:
        """Time passes to the next deadline; every node gets its tick."""
        now_us = self._next_time(state)
        if now_us > LONGEST_US:
            raise Violation(f"not over after {LONGEST_US / 1e6:g} s: {self.describe_held(state)}")
        state = (*state[:NOW_AT], now_us, *state[BUDGETS_AT:])
        for at in (ROUTER_AT, PREFILL, DECODE):
            state = self._run(state, at, Kind.TICK, 0)
        return state

    # -- the end -------------------------------------------------------------------------------

    def describe_held(self, state: State) -> str:
        """What a state still holds, by process."""
        held = [self.front.facts(state[ROUTER_AT]).held]
        held += [host.facts(state[side]).held for side, host in enumerate(self.hosts)]
        names = ("router", *NAMES)
        return "; ".join(
            f"{name} has {what}" for name, what in zip(names, held, strict=True) if what
        )

    def ends(self, state: State) -> tuple[str, ...]:
        """How each request ended."""
        return tuple(s.end for s in self.front.states.values[state[ROUTER_AT]].streams)

    def check_terminal(self, state: State) -> None:
        """Every request ended, nothing is held, and without a fault nothing failed."""
        ends = self.ends(state)
        for number, end in enumerate(ends):
            require(bool(end), f"r{number} never ended")
            faultless = state[BUDGETS_AT] == self._budgets
            require(not faultless or end == "finished", f"r{number} {end} without any fault")
        held = self.describe_held(state)
        require(not held, f"everything is quiet and {held}")
