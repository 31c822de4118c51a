"""The thread that owns the agent: it moves, notifies and listens, and naps in between.

NIXL has no descriptor to wait on, so the thread looks by itself: when a peer rings, often while
anything moves, seldom otherwise. One look costs about 1 us.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from baton.runtime.dataplane.arena import Bytes
from baton.runtime.dataplane.ledger import Ledger, failed
from baton.runtime.dataplane.meter import Meter
from baton.runtime.dataplane.nixl.agent import Agent, EngineFault
from baton.runtime.dataplane.nixl.digests import run_digest
from baton.runtime.dataplane.nixl.doorbell import Doorbell
from baton.runtime.dataplane.nixl.flight import Flight
from baton.runtime.dataplane.nixl.lane_watch import LaneWatch
from baton.runtime.dataplane.nixl.mailbox import Mailbox
from baton.runtime.dataplane.nixl.notes import RECORDS_PER_NOTE, pack
from baton.runtime.dataplane.nixl.peer import Peer
from baton.runtime.dataplane.nixl.severance import Life, Severance
from baton.runtime.dataplane.pace import Pace
from baton.runtime.dataplane.plane import DigestOrder, Finished, PlaneFault, PutOrder
from baton.runtime.dataplane.runs import fault_in, stage_fault

_IDLE_NAP_S = 0.005
"""1 % of a core; who cannot be rung is heard that much later."""
_ALERT_NAP_S = 0.0001
_ALERT_S = 0.01
"""How long after the last sign of life the next one is expected soon."""
_SPIN_S = 0.002
"""So long a transfer is looked at without a nap: a socket's lane moves only while one looks."""
_ATTENTION_S = 0.005
_FAREWELL_S = 1.0
_HOLD_S = 0.0004
"""How long a note may wait for company while more orders follow: the receiver wakes for each."""


class AgentThread:
    """Runs the orders of a ledger; `find` returns the connected life of a peer."""

    def __init__(
        self,
        ledger: Ledger,
        meter: Meter,
        find: Callable[[str, int], Peer | None],
        *,
        name: str,
        host: str,
        hashed: bool,
        move_timeout_s: float,
        pace: Pace | None,
    ) -> None:
        self.num_orders = 0
        self.num_runs = 0
        self._ledger = ledger
        self._meter = meter
        self._find = find
        self._name = name
        self._host = host
        self._hashed = hashed
        self._move_timeout_s = move_timeout_s
        self._pace = pace
        self._regions: list[Bytes] = []
        self._busy: dict[Peer, None] = {}
        """Peers with something to do, in the order in which they are looked at."""
        self._lingering: list[tuple[Peer, Flight]] = []
        self._alert_until_s = 0.0
        self._closing = False
        self._is_roused = False
        self._wakes: queue.SimpleQueue[int | Callable[[], None]] = queue.SimpleQueue()
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, name="baton-nixl", daemon=True)
        self._thread.start()
        self._started.result()
        self.doorbell = Doorbell(host, self._rouse)

    @property
    def mailbox(self) -> Mailbox:
        """Where notes of peers are read."""
        return self._mailbox

    @property
    def lanes(self) -> LaneWatch:
        """Which ways the orders took."""
        return self._lanes

    def submit(self, handle: int) -> None:
        """Let the thread run an admitted order."""
        self._wakes.put(handle)

    def call(self, function: Callable[[Agent], Any], timeout_s: float = 10.0) -> Any:
        """Run `function` on the thread and return its result."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(function(self._agent))
            except BaseException as error:
                future.set_exception(error)

        self._wakes.put(run)
        return future.result(timeout_s)

    def register(self, regions: list[Bytes]) -> bytes:
        """Register the own memory, stage by stage, and return its metadata."""
        metadata: bytes = self.call(lambda agent: agent.register(regions))
        self._regions = regions
        return metadata

    def meet(self, name: str, metadata: bytes) -> str:
        """Learn of a peer; returns the name of its agent, which should be `name`."""

        def meet(agent: Agent) -> str:
            peer = self._severance.revive(name)
            if peer is not None:
                self._forget(peer)
            return agent.add(metadata)

        met: str = self.call(meet)
        return met

    def retire(self, peer: Peer) -> None:
        """Let go of a peer that `find` no longer returns, once nothing of it moves any more."""
        self._severance.keep(peer)
        self._wakes.put(lambda: self._retire(peer))

    def sever(self, life: Life) -> bool:
        """Whether nothing of a life whose process is dead can land any more; ask until it is so."""
        if not self._severance.is_open(life):
            return True
        self._wakes.put(lambda: self._severance.ask(life))
        return False

    def close(self) -> bool:
        """Stop; the ledger must refuse orders by now. False when a transfer is still under way."""

        def close() -> None:
            self._closing = True

        self._wakes.put(close)
        self._thread.join()
        self.doorbell.close()
        return not self._lingering

    def _rouse(self) -> None:
        if not self._is_roused:
            self._is_roused = True
            self._wakes.put(self._be_alert)

    # -- the thread ----------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            self._agent = Agent(self._name, host=self._host)
        except BaseException as error:
            self._started.set_exception(error)
            return
        self._mailbox = Mailbox(self._agent)
        self._lanes = LaneWatch(self._agent.log)
        self._severance = Severance(self._agent)
        self._started.set_result(None)
        try:
            while not self._closing:
                self._turn()
            self._finish()
        except BaseException:
            # A bug here must not leave callers waiting: everything ends, and the traceback shows.
            self._ledger.abandon()
            raise

    def _turn(self) -> None:
        self._take_wakes()
        for peer in list(self._busy):
            self._serve(peer)
        self._settle()
        for peer in self._severance.take_broken():
            self._forget(peer)
        received = self._mailbox.receive()
        if received:
            self._ledger.receive(received)
        if self._mailbox.take_signs():
            self._alert_until_s = time.perf_counter() + _ALERT_S

    def _be_alert(self) -> None:
        """A peer has rung; what it rang for may come a moment later."""
        self._is_roused = False
        self._alert_until_s = time.perf_counter() + _ALERT_S

    def _take_wakes(self) -> None:
        nap_s = self._nap_s()
        try:
            wake = self._wakes.get(timeout=nap_s) if nap_s else self._wakes.get_nowait()
            while True:
                if callable(wake):
                    wake()
                else:
                    self._begin(wake)
                wake = self._wakes.get_nowait()
        except queue.Empty:
            return

    def _nap_s(self) -> float:
        now_s = time.perf_counter()
        for peer in self._busy:
            if peer.flight is None or now_s - peer.flight.moved_s < _SPIN_S:
                return 0.0
        if self._busy or now_s < self._alert_until_s:
            return _ALERT_NAP_S
        return _IDLE_NAP_S

    def _begin(self, handle: int) -> None:
        order = self._ledger.peek(handle)
        if order is None:
            return
        if isinstance(order, DigestOrder):
            run_digest(self._ledger, self._regions, handle)
            return
        peer = self._find(order.peer_id, order.peer_epoch)
        if peer is None:
            if self._ledger.start(handle) is not None:
                self._ledger.finish_running(failed(handle, order, PlaneFault.PEER_GONE))
            return
        peer.waiting.append(handle)
        self._busy[peer] = None

    def _serve(self, peer: Peer) -> None:
        """Go on with one order of a peer; in between the others and the mailbox get their turn."""
        if peer.flight is None and peer.waiting:
            peer.flight = self._take_off(peer, peer.waiting.popleft())
        if peer.flight is not None and self._go_on(peer, peer.flight):
            peer.flight = None
        is_idle = peer.flight is None and not peer.waiting
        if is_idle or self._is_flush_due(peer):
            self._flush(peer)
        if is_idle:
            self._busy.pop(peer, None)

    def _take_off(self, peer: Peer, handle: int) -> Flight | None:
        order = self._ledger.start(handle)
        if order is None:
            return None
        assert isinstance(order, PutOrder)
        # Checked before neighbours are joined, so that no negative length hides in a sum.
        fault = self._fault_in(order, peer.descriptor.sizes)
        if fault:
            self._ledger.finish_running(failed(handle, order, PlaneFault.OUT_OF_BOUNDS, fault))
            return None
        region = self._regions[order.local_stage]
        flight = Flight(handle, order, region, peer.descriptor, hashed=self._hashed)
        self.num_orders += 1
        self.num_runs += len(flight.runs)
        if flight.runs and peer.needs_help(order.direction):
            self._ask(peer)
        return flight

    def _ring(self, peer: Peer) -> None:
        """Let a peer look, and go on looking for a while."""
        now_s = time.perf_counter()
        if now_s - peer.rung_s > _ATTENTION_S:
            peer.rung_s = now_s
            self.doorbell.ring(peer.descriptor.doorbell)

    def _ask(self, peer: Peer) -> None:
        now_s = time.perf_counter()
        if now_s - peer.asked_s > _ATTENTION_S:
            peer.asked_s = now_s
            try:
                self._agent.notify(peer.descriptor.agent, pack(peer.descriptor.token, ()))
            except EngineFault:
                return  # the transfer itself will say what is wrong

    def _go_on(self, peer: Peer, flight: Flight) -> bool:
        """Advance a flight; False while its end must be waited for."""
        ledger, handle, order = self._ledger, flight.handle, flight.order
        stop = ledger.stop_of(handle)
        try:
            done = flight.advance(self._agent, may_post=stop is None)
        except EngineFault as error:
            fault = PlaneFault.PEER_GONE if error.is_peer_gone else PlaneFault.ENGINE
            ledger.finish_running(failed(handle, order, stop or fault, str(error)))
            return True
        if done:
            self._land(peer, flight, stop)
            return True
        self._ring(peer)  # over memory, too, an end may wait for the peer's next look
        late = time.perf_counter() - flight.moved_s > self._move_timeout_s
        if late or peer.is_retired:
            ledger.linger(handle, stop or PlaneFault.TIMEOUT)
            self._lingering.append((peer, flight))
            return True
        return False

    def _land(self, peer: Peer, flight: Flight, stop: PlaneFault | None) -> None:
        order, finished = flight.order, flight.finished()
        if stop is not None:
            self._ledger.finish_running(failed(flight.handle, order, stop))
            return
        if flight.runs:
            self._lanes.landed(peer, order.direction)
        if self._pace is not None:
            self._pace(
                finished.nbytes,
                flight.began_s,
                lambda: self._ledger.stop_of(flight.handle) is not None,
            )
        if order.direction == "read":
            self._ledger.finish_running(finished)
        elif self._ledger.park_running(finished):
            peer.parked.append((flight.handle, flight.moved_s))
        total_us = 1e6 * (time.perf_counter() - flight.began_s)
        self._meter.observe(finished.nbytes, finished.duration_us, total_us)

    def _is_flush_due(self, peer: Peer) -> bool:
        return bool(peer.parked) and time.perf_counter() - peer.parked[0][1] > _HOLD_S

    def _flush(self, peer: Peer) -> None:
        """Notify a peer of what has landed there, oldest first."""
        while peer.parked:
            count = min(RECORDS_PER_NOTE, len(peer.parked))
            handles = [peer.parked.popleft()[0] for _ in range(count)]

            def send(moved: list[Finished]) -> bool:
                self._agent.notify(peer.descriptor.agent, pack(peer.descriptor.token, moved))
                return True

            try:
                self._ledger.notify_parked(handles, send)
                self._ring(peer)
            except EngineFault as error:
                self._ledger.fail_parked(handles, PlaneFault.PEER_GONE, str(error))
            self._alert_until_s = time.perf_counter() + _ALERT_S

    def _settle(self) -> None:
        """See which of the transfers that nobody waits for have ended."""
        for entry in list(self._lingering):
            peer, flight = entry
            try:
                if not flight.advance(self._agent, may_post=False):
                    continue
            except EngineFault:
                pass  # it has ended, and it had failed before
            self._lingering.remove(entry)
            self._ledger.settle(flight.handle)
            life = (peer.descriptor.worker_id, peer.descriptor.epoch)
            if peer.is_retired and not self._severance.is_open(life):
                self._forget(peer)

    def _retire(self, peer: Peer) -> None:
        peer.is_retired = True
        while peer in self._busy:  # every order of it has a stop by now
            self._serve(peer)

    def _forget(self, peer: Peer) -> None:
        if any(other is peer for other, _ in self._lingering):
            return  # forgotten now, its transfer could never be seen to end
        try:
            self._agent.remove(peer.descriptor.agent)
        except EngineFault:
            return  # it has gone by itself

    def _finish(self) -> None:
        """Give what is under way a moment to end."""
        for peer in list(self._busy):
            if peer.flight is not None:
                self._lingering.append((peer, peer.flight))
                self._ledger.linger(peer.flight.handle, PlaneFault.CLOSED)
        until_s = time.perf_counter() + _FAREWELL_S
        while self._lingering and time.perf_counter() < until_s:
            self._settle()
        if not self._lingering:
            self._severance.close()
            self._mailbox.close()
            del self._agent

    def _fault_in(self, order: PutOrder, sizes: Sequence[int]) -> str:
        fault = stage_fault(order.local_stage, len(self._regions))
        fault = fault or stage_fault(order.remote_stage, len(sizes))
        if fault:
            return fault
        local_nbytes = self._regions[order.local_stage].size
        return fault_in(order.runs, local_nbytes, sizes[order.remote_stage])
