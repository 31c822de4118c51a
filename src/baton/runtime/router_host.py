"""The real host of the router node, and the gateway's backend."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from baton import __version__
from baton.config import BatonConfig
from baton.core import effects, events
from baton.core.delivery import Delivery, Failed, Finished
from baton.core.deployment_manifest import DeploymentRecord
from baton.core.effects import Effect, Trace
from baton.core.events import Event
from baton.core.ids import Role
from baton.core.layout import ModelInfo
from baton.core.messages import Envelope, Hello, Refused, Traced
from baton.core.request import Request
from baton.core.snapshot import WorkerInfo
from baton.errors import RemoteProtocolError, RequestRejected
from baton.nodes.cache_view import CacheView, view_cache
from baton.nodes.context import ROUTER
from baton.nodes.draining import drain_refusal, outstanding
from baton.nodes.router import Router
from baton.runtime.channel import control_endpoint
from baton.runtime.clock import now_us
from baton.runtime.curve import mint_keys
from baton.runtime.deployment_record import RecordKeeper
from baton.runtime.descriptors import DescriptorReserve
from baton.runtime.faults import FaultSpec, open_channel
from baton.runtime.introduction import check_introduction
from baton.runtime.issuer_key import mint_signer, published
from baton.runtime.live_telemetry import LiveTelemetry
from baton.runtime.notice import notice
from baton.runtime.router_door import RouterDoor
from baton.runtime.trace_log import TraceLog
from baton.telemetry.exposition import render_metrics
from baton.telemetry.live.feed import Detail, Feed, make_detail, make_feed

_MAX_REFUSALS = 16
"""Different ones that are said to the operator; all are counted."""


class RouterHost:
    """Runs the router node on the gateway's event loop and hands its deliveries to streams."""

    def __init__(
        self,
        config: BatonConfig,
        runtime_dir: Path,
        trace_dir: Path | None = None,
        *,
        faults: FaultSpec | None = None,
        config_digest: str = "",
    ) -> None:
        self._config = config
        self._config_digest = config_digest or config.digest
        self._loop = asyncio.get_running_loop()
        endpoint = control_endpoint(config.cluster, runtime_dir, "router")
        keys = mint_keys() if config.cluster.control == "tcp" else None
        self._channel = open_channel(ROUTER, 0, endpoint, keys, faults)
        self.door = RouterDoor(
            endpoint=self._channel.endpoint,
            key=keys.public if keys else b"",
            admit=self._channel.admit,
        )
        signer = mint_signer()
        self.issuer = published(signer)
        self._node = Router(config.router, config.transfer, config.cache, signer=signer)
        self._records = RecordKeeper(config)
        self._streams: dict[str, asyncio.Queue[Delivery]] = {}
        self._timer: asyncio.TimerHandle | None = None
        trace_path = str(trace_dir / "router.jsonl") if trace_dir else ""
        self.trace = TraceLog(ROUTER, trace_path)
        self.trace.started()
        self.live = LiveTelemetry(config)
        self.descriptors = DescriptorReserve(ROUTER)
        self._refusals: set[str] = set()
        self.on_drain: Callable[[str, int, float], None] = lambda worker_id, epoch, timeout_s: None
        """Takes a worker away that gets nothing new any more: set by who started it."""
        self.slot_of: Callable[[str], Role | None] = lambda worker_id: None
        """The role of a worker that is kept alive, be it up or not: set by who keeps it."""
        self.failure = ""
        """Why this router cannot go on; "" while it does."""
        self._receiving = asyncio.create_task(self._receive())
        self._receiving.add_done_callback(self._on_receiving_ended)

    @property
    def node(self) -> Router:
        """The router node; read it, never change it."""
        return self._node

    # -- backend -------------------------------------------------------------------------------

    @property
    def info(self) -> ModelInfo | None:
        """The model that the workers serve."""
        return self._node.fleet.model

    async def submit(self, request: Request) -> AsyncIterator[Delivery]:
        """Start a request and yield what happens to it; the last item is its one end."""
        stream: asyncio.Queue[Delivery] = asyncio.Queue()
        self._streams[request.request_id] = stream
        try:
            self._feed(events.Submitted(request=request))
            while True:
                delivery = await stream.get()
                yield delivery
                if isinstance(delivery, Finished | Failed):
                    return
        finally:
            self._streams.pop(request.request_id, None)
            self.cancel(request.request_id, "disconnect")

    def cancel(self, request_id: str, reason: str) -> None:
        """Give a request up; one that has ended is left alone."""
        if request_id in self._node.records:
            self._feed(events.Cancelled(request_id=request_id, reason=reason))

    def observe(self, trace: Trace) -> None:
        """Take a trace event of the gateway, into the file of this process."""
        self._record(trace, now_us())

    def ready(self) -> str:
        """Why nothing can be served now, or ""."""
        return self._node.missing(now_us())

    def status(self) -> dict[str, Any]:
        """A summary for /version and the status screen."""
        info = self.info
        return {
            "version": __version__,
            "config_digest": self._config_digest,
            "model": info.name if info else "",
            "model_digest": info.identity.digest if info else "",
            "layout_digest": info.layout.digest if info else "",
            "deterministic": info.deterministic if info else False,
            "workers": [
                {
                    "id": view.info.worker_id,
                    "role": view.info.role,
                    "epoch": view.info.epoch,
                    "draining": view.draining,
                    "pid": view.info.pid,
                }
                for view in self._node.fleet
            ],
        }

    def deployment(self) -> DeploymentRecord | None:
        """What this deployment is made of; None until every worker has joined once."""
        infos = [view.info for view in self._node.fleet]
        return self._records.record(infos, self._node.context.rights.route_epoch)

    def metrics(self) -> bytes:
        """Prometheus text of the router and the workers' last snapshots."""
        live = self.live.settled().metrics.render()
        return render_metrics(self._node, self.host_counters()) + live

    def dashboard(self) -> Feed:
        """What the page shows."""
        live = self.live.settled()
        feed = make_feed(self._node, live.history, live.metrics, now_us())
        return msgspec.structs.replace(feed, is_live=live.is_on)

    def dashboard_request(self, request_id: str) -> Detail | None:
        """The page of one request that is still kept."""
        recent = self.live.settled().history.find(request_id)
        return make_detail(recent.story, recent.events, now_us()) if recent else None

    def traces(self) -> bytes:
        """Events of the last requests, as lines."""
        return self.live.lines()

    def cache(self) -> CacheView:
        """What lives where in the K/V pool."""
        return view_cache(self._node, now_us())

    def clear_cache(self) -> int:
        """No history that exists now may be reused; returns the cache's new generation."""
        self._feed(events.CacheCleared())
        return self._node.generations.current

    def drain_worker(self, worker_id: str, timeout_s: float) -> None:
        """Begin to remove a worker; see `drain`. It ends when it is idle, or after so long."""
        self.on_drain(worker_id, self.drain(worker_id), timeout_s)

    def host_counters(self) -> dict[str, int]:
        """Named outcomes of this host, beside those of the node."""
        counters = self._channel.counters
        host = {f"channel_{name}": count for name, count in sorted(counters.items())}
        history = self.live.history
        return {
            **host,
            "trace_dropped_events": self.trace.num_dropped,
            "live_dropped_events": history.num_dropped,
            "live_late_events": history.num_late,
        }

    # -- workers -------------------------------------------------------------------------------

    def worker_lost(self, worker_id: str, epoch: int, ended: bool = True) -> None:
        """The supervisor saw the process of that epoch end.

        Without `ended` it is given up: nobody can reach the process, and it may still run. Then
        this is called again when its end is known, and before that its next life may start. What
        it may still write into stays in quarantine at the others until then. Should it speak
        again it is told to end itself, so it is heard as long as no newer life has its place.
        """
        current = self._node.fleet.get(worker_id)
        if self._node.fleet.get(worker_id, epoch) is not None:
            self.live.lose(worker_id)  # before anything of it is routed anew
        if ended:
            if current is None or current.info.epoch <= epoch:
                self._channel.disconnect(worker_id)
            self._channel.withdraw(worker_id, epoch)
        self._feed(events.WorkerLost(worker_id=worker_id, epoch=epoch, ended=ended))

    def drain(self, worker_id: str) -> int:
        """Give this worker nothing new. Returns the epoch of the life that this is true of.

        It is 0 for a worker that has no life now, because it waits for a node or for its next
        start. Raises RequestRejected for an unknown one, or where nobody could serve without it.
        """
        view = self._node.fleet.get(worker_id)
        absent = self.slot_of(worker_id) if view is None else None
        refusal = drain_refusal(self._node, worker_id, absent)
        if refusal:
            status = 404 if view is None and absent is None else 409
            raise RequestRejected(refusal, status=status, param="worker", code="cannot_drain")
        if view is None:
            return 0
        epoch = view.info.epoch
        self._feed(events.WorkerDraining(worker_id=worker_id, epoch=epoch))
        return epoch

    def outstanding(self, worker_id: str, epoch: int) -> list[str]:
        """What open requests still need that life of a worker for."""
        return outstanding(self._node, worker_id, epoch)

    def revoke_routes(self, reason: str) -> None:
        """Take back every transfer that is under way; the requests start again on new routes."""
        self._feed(events.RoutesRevoked(reason=reason))

    def silent_workers(self) -> dict[str, str]:
        """Workers that are alive as processes and do not answer, or whose engine does not: why."""
        return self._node.fleet.unresponsive(now_us())

    def _on_receiving_ended(self, receiving: "asyncio.Task[None]") -> None:
        error = None if receiving.cancelled() else receiving.exception()
        if error is not None:
            text = "the router hears nothing any more"
            self._loop.call_exception_handler({"message": text, "exception": error})
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """A router that hears nothing, or whose time stands still, must not look alive."""
        self.failure = self.failure or f"the router ended: {type(error).__name__}: {error}"

    async def _receive(self) -> None:
        while True:
            envelope = await self._channel.receive()
            if isinstance(envelope.message, Hello) and not self._meet(envelope, envelope.message):
                continue
            if isinstance(envelope.message, Traced):
                self._hear(envelope, envelope.message)
                continue
            self._dismiss(envelope.sender_id, envelope.sender_epoch)
            self._feed(events.Received(envelope=envelope))

    def _dismiss(self, worker_id: str, epoch: int) -> None:
        """A life that was given up speaks: nobody needs it, unless its word is still a proof."""
        fleet, life = self._node.fleet, (worker_id, epoch)
        if not fleet.is_over(*life) or fleet.has_ended(*life) or fleet.get(worker_id) is not None:
            return
        snapshots = [view.snapshot for view in fleet]
        if any(life in snapshot.unproven for snapshot in snapshots if snapshot is not None):
            return  # others wait for it to say that it is quiet
        self._channel.counters["dismissed_lives"] += 1
        reason = f"epoch {epoch} was given up as out of reach, and its work went elsewhere"
        self._channel.send(worker_id, Refused(reason=reason))

    def _hear(self, envelope: Envelope, message: Traced) -> None:
        """Only a life that counts is heard; the node decides nothing by what was traced."""
        if self._node.fleet.get(envelope.sender_id, envelope.sender_epoch) is None:
            self._channel.counters["stale_traces"] += 1
            return
        self.live.hear(envelope.sender_id, envelope.sender_epoch, message)

    def _record(self, trace: Trace, at_us: int) -> None:
        self.trace.record(trace, at_us)
        self.live.record(trace, at_us)

    def _meet(self, envelope: Envelope, hello: Hello) -> bool:
        """Open the way to a worker that says hello; False for a life that is known to be over."""
        info = hello.info
        if (info.worker_id, info.epoch) != (envelope.sender_id, envelope.sender_epoch):
            self._channel.counters["forged_senders"] += 1
            return False
        known = self._node.fleet.get(info.worker_id)
        if known is not None and known.info.epoch == info.epoch:
            return True  # the way is open, the answer was lost
        newer = known is not None and known.info.epoch > info.epoch
        if newer or self._node.fleet.is_over(info.worker_id, info.epoch):
            self._channel.counters["late_hellos"] += 1
            return False
        # Its own key, as the supervisor minted it: another's name would take that one's place.
        key = self._channel.key_of(info.worker_id, info.epoch)
        try:
            check_introduction(info, control=self._channel.control)
            if info.control_key != key:
                raise RemoteProtocolError(
                    f"worker {info.worker_id} epoch {info.epoch} names a control_key that is not "
                    "its own; it must say the one that its supervisor minted"
                )
        except RemoteProtocolError as error:
            self._refuse(info, str(error), key if known is None else None)
            return False
        return self._open(info, key)

    def _open(self, info: WorkerInfo, key: bytes) -> bool:
        try:
            self._channel.connect(info.worker_id, info.endpoint, key)
        except RemoteProtocolError as error:
            notice(ROUTER, str(error))
            return False
        return True

    def _refuse(self, info: WorkerInfo, reason: str, key: bytes | None) -> None:
        """Say why, once to the operator and always to the worker, if it displaces nobody."""
        self._channel.counters["refused_hellos"] += 1
        if reason not in self._refusals and len(self._refusals) < _MAX_REFUSALS:
            self._refusals.add(reason)
            notice(ROUTER, f"refused a hello: {reason}")
        if key is not None and info.worker_id != ROUTER and self._open(info, key):
            self._channel.send(info.worker_id, Refused(reason=reason))

    # -- node ----------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        at_us = now_us()
        for effect in self._node.handle(event, at_us):
            self._perform(effect, at_us)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_us = self._node.next_deadline()
        if deadline_us is not None:
            delay_s = max(0, deadline_us - at_us) / 1e6
            self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        try:
            self._feed(events.Tick())
        except Exception as error:
            self._fail(error)
            raise

    def _perform(self, effect: Effect, at_us: int) -> None:
        match effect:
            case effects.Send(to=to, message=message):
                self._channel.send(to, message)
            case effects.Deliver(request_id=request_id, delivery=delivery):
                stream = self._streams.get(request_id)
                if stream is not None:
                    stream.put_nowait(delivery)
            case effects.Trace():
                self._record(effect, at_us)
            case _:
                raise AssertionError(f"the router host cannot {type(effect).__name__}")

    async def close(self) -> None:
        """Stop receiving and close the channel."""
        if self._timer is not None:
            self._timer.cancel()
        self._receiving.cancel()
        await asyncio.gather(self._receiving, return_exceptions=True)
        self._channel.close()
        self.descriptors.close()
        self.live.close()
        self.trace.close()
