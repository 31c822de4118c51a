"""What the page at /dashboard shows of a deployment of vLLM servers."""

from baton.runtime.clock import now_us
from baton.runtime.vllm.backend import VllmBackend
from baton.runtime.vllm.servers import Server
from baton.telemetry.live.feed import Detail, Feed, Standing, WorkerCard, fold_feed, make_detail


class VllmPage:
    """The same page as of the own engine, with what vLLM servers say of themselves."""

    def __init__(self, backend: VllmBackend) -> None:
        self._backend = backend

    def dashboard(self) -> Feed:
        """What it shows now."""
        backend, live = self._backend, self._backend.tracer.live.settled()
        standing = Standing(
            model=backend.model or backend.config.model.name,
            ready=backend.servers.unready(),
            open_requests=backend.num_open,
            waiting_requests=0,  # whoever waits does so at a server, and is in its card
            workers=tuple(map(_card, backend.servers)),
        )
        return fold_feed(standing, live.history, live.metrics, now_us())

    def dashboard_request(self, request_id: str) -> Detail | None:
        """The page of one request that is still kept."""
        recent = self._backend.tracer.live.settled().history.find(request_id)
        return make_detail(recent.story, recent.events, now_us()) if recent else None


def _card(server: Server) -> WorkerCard:
    """vLLM tells how much of its cache is taken, and no more of its blocks."""
    load = server.load
    used = round(load.kv_usage * load.num_blocks)
    return WorkerCard(
        worker_id=server.server_id,
        role=str(server.role) if server.is_up else f"{server.role}, down: {server.why_down}",
        epoch=server.epoch,
        waiting=load.waiting,
        running=load.running,
        pending_tokens=server.pending_tokens,
        blocks={"used": used, "free": load.num_blocks - used} if load.num_blocks else {},
    )
