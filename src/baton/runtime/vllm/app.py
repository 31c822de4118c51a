"""Routes of the gateway in front of vLLM servers, as one plain ASGI application."""

import time
from typing import Any

import msgspec

from baton.config import GatewayConfig
from baton.core.effects import Trace
from baton.errors import RequestRejected
from baton.runtime.gateway.dashboard import Dashboard
from baton.runtime.gateway.edge import HttpEdge, require_json
from baton.runtime.gateway.exchange import LINES, TEXT, Exchange
from baton.runtime.gateway.tenants import Tenants
from baton.runtime.vllm.backend import VllmBackend
from baton.runtime.vllm.generation import VllmGeneration
from baton.runtime.vllm.page import VllmPage
from baton.runtime.vllm.router import RETRY_NOT_READY_S
from baton.runtime.vllm.servers import Server


class VllmGatewayApp(HttpEdge):
    """The ASGI application; one instance serves one model."""

    def __init__(self, backend: VllmBackend, config: GatewayConfig, *, version: str) -> None:
        super().__init__(backend.config.model.name)
        self._backend = backend
        self._dashboard = Dashboard(VllmPage(backend))
        self._config = config
        self._tenants = Tenants(config)
        self._version = version
        self._created = int(time.time())
        self._routes = {
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completions),
            "/v1/models": ("GET", self._models),
            "/health": ("GET", self._ready),
            "/ready": ("GET", self._ready),
            "/metrics": ("GET", self._metrics_text),
            "/cache": ("GET", self._cache),
            "/version": ("GET", self._version_info),
            "/traces": ("GET", self._traces),
            "/dashboard": ("GET", self._dashboard.page),
            "/dashboard/feed": ("GET", self._dashboard.feed),
            "/dashboard/request": ("GET", self._dashboard.request),
        }

    def _note_answer(self, exchange: Exchange, status: int) -> None:
        for output_id in exchange.output_ids:
            trace = Trace(name="answered", request_id=output_id, data={"status": status})
            self._backend.tracer.say(trace)

    async def _chat(self, exchange: Exchange) -> None:
        await self._generate(exchange, chat=True)

    async def _completions(self, exchange: Exchange) -> None:
        await self._generate(exchange, chat=False)

    async def _generate(self, exchange: Exchange, *, chat: bool) -> None:
        require_json(exchange)
        await VllmGeneration(
            exchange,
            chat=chat,
            backend=self._backend,
            config=self._config,
            metrics=self.metrics,
            tenants=self._tenants,
        ).serve()

    async def _models(self, exchange: Exchange) -> None:
        backend = self._backend
        names = sorted({name for server in backend.servers for name in server.models})
        root = next((server.root for server in backend.servers if server.root), "")
        data = [
            {
                "id": name,
                "object": "model",
                "created": self._created,
                "owned_by": "vllm",
                "root": root or name,
                "max_model_len": backend.max_model_len or None,
            }
            for name in names or [backend.config.model.name]
        ]
        await exchange.respond(200, msgspec.json.encode({"object": "list", "data": data}))

    async def _ready(self, exchange: Exchange) -> None:
        """Fails when nothing can be served; says so when it is not what was asked for."""
        if reason := self._backend.servers.unready():
            raise RequestRejected(
                f"not ready: {reason}",
                status=503,
                code="not_ready",
                retry_after_s=RETRY_NOT_READY_S,
            )
        splits = self._backend.can_split()
        body = {"status": "ready", "mode": "disaggregated" if splits else "colocated"}
        await exchange.respond(200, msgspec.json.encode(body))

    async def _metrics_text(self, exchange: Exchange) -> None:
        live = self._backend.tracer.live.settled().metrics
        body = self.metrics.render() + self._backend.metrics.render() + live.render()
        await exchange.respond(200, body, content_type=TEXT)

    async def _traces(self, exchange: Exchange) -> None:
        await exchange.respond(200, self._backend.tracer.live.lines(), content_type=LINES)

    async def _cache(self, exchange: Exchange) -> None:
        index = self._backend.prefixes.index
        body = {
            "block_size": self._backend.prefixes.block_size,
            "num_blocks": index.num_blocks,
            "num_claims": index.num_claims,
            "num_unnamed": self._backend.prefixes.num_unnamed,
            "servers": {
                server.server_id: {str(k): v for k, v in index.holdings(server.server_id).items()}
                for server in self._backend.servers
            },
        }
        await exchange.respond(200, msgspec.json.encode(body))

    async def _version_info(self, exchange: Exchange) -> None:
        settings = self._backend.config.vllm
        body = {
            "version": self._version,
            "engine": "vllm",
            "model": self._backend.model,
            "connector": settings.connector,
            "policy": self._backend.config.router.policy,
            "config_digest": self._backend.config.digest,
            "servers": [self._server(server) for server in self._backend.servers],
            "deployment": self._backend.manifest.record,
        }
        await exchange.respond(200, msgspec.json.encode(body))

    def _server(self, server: Server) -> dict[str, Any]:
        return {
            "id": server.server_id,
            "role": server.role,
            "url": server.url,
            "epoch": server.epoch,
            "up": server.is_up,
            "why_down": server.why_down,
            "vllm": server.version,
            "model": server.model,
            "root": server.root,
            "events": server.address.events,
            "load": msgspec.to_builtins(server.load),
        }
