"""Routes of the HTTP edge as one plain ASGI application."""

import logging
import time

import msgspec

from baton.config import GatewayConfig
from baton.core.effects import Trace
from baton.errors import RequestRejected
from baton.runtime.gateway.backend import Backend
from baton.runtime.gateway.dashboard import Dashboard
from baton.runtime.gateway.drain import drain_worker
from baton.runtime.gateway.edge import HttpEdge, require_json, unsupported_media_type
from baton.runtime.gateway.exchange import LINES, TEXT, Exchange
from baton.runtime.gateway.generate import RETRY_NOT_READY_S, Generation
from baton.runtime.gateway.tenants import Tenants
from baton.runtime.gateway.tokenizer import Tokenizer

logger = logging.getLogger("baton.gateway")


class GatewayApp(HttpEdge):
    """The ASGI application; one instance serves one model."""

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        config: GatewayConfig,
        *,
        model_name: str,
        version: str,
    ) -> None:
        super().__init__(model_name)
        self._backend = backend
        self._dashboard = Dashboard(backend)
        self._tokenizer = tokenizer
        self._config = config
        self._tenants = Tenants(config)
        self._version = version
        self._created = int(time.time())
        self._routes = {
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completions),
            "/v1/models": ("GET", self._models),
            f"/v1/models/{model_name}": ("GET", self._model),
            "/health": ("GET", self._health),
            "/ready": ("GET", self._ready),
            "/metrics": ("GET", self._metrics_text),
            "/traces": ("GET", self._traces),
            "/dashboard": ("GET", self._dashboard.page),
            "/dashboard/feed": ("GET", self._dashboard.feed),
            "/dashboard/request": ("GET", self._dashboard.request),
            "/cache": ("GET", self._cache),
            "/cache/clear": ("POST", self._clear_cache),
            "/workers/drain": ("POST", self._drain_worker),
            "/version": ("GET", self._version_info),
        }

    def _note_answer(self, exchange: Exchange, status: int) -> None:
        for output_id in exchange.output_ids:
            trace = Trace(name="answered", request_id=output_id, data={"status": status})
            self._backend.observe(trace)

    async def _chat(self, exchange: Exchange) -> None:
        await self._generate(exchange, chat=True)

    async def _completions(self, exchange: Exchange) -> None:
        await self._generate(exchange, chat=False)

    async def _generate(self, exchange: Exchange, *, chat: bool) -> None:
        require_json(exchange)
        await Generation(
            exchange,
            chat=chat,
            backend=self._backend,
            tokenizer=self._tokenizer,
            config=self._config,
            model_name=self._model_name,
            metrics=self.metrics,
            tenants=self._tenants,
        ).serve()

    async def _models(self, exchange: Exchange) -> None:
        body = {"object": "list", "data": [self._model_object()]}
        await exchange.respond(200, msgspec.json.encode(body))

    async def _model(self, exchange: Exchange) -> None:
        await exchange.respond(200, msgspec.json.encode(self._model_object()))

    def _model_object(self) -> dict[str, object]:
        info = self._backend.info
        return {
            "id": self._model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "baton",
            "root": info.name if info else self._model_name,
            "max_model_len": info.max_model_len if info else None,
        }

    async def _health(self, exchange: Exchange) -> None:
        await exchange.respond(200, b'{"status":"ok"}')

    async def _ready(self, exchange: Exchange) -> None:
        reason = self._backend.ready()
        if not reason and self._backend.info is None:
            reason = "no worker has loaded the model yet"
        if reason:
            raise RequestRejected(
                f"not ready: {reason}",
                status=503,
                code="not_ready",
                retry_after_s=RETRY_NOT_READY_S,
            )
        await exchange.respond(200, b'{"status":"ready"}')

    async def _metrics_text(self, exchange: Exchange) -> None:
        body = self.metrics.render() + self._backend.metrics()
        await exchange.respond(200, body, content_type=TEXT)

    async def _traces(self, exchange: Exchange) -> None:
        await exchange.respond(200, self._backend.traces(), content_type=LINES)

    async def _cache(self, exchange: Exchange) -> None:
        await exchange.respond(200, msgspec.json.encode(self._backend.cache()))

    async def _drain_worker(self, exchange: Exchange) -> None:
        await drain_worker(exchange, self._backend, self._config)

    async def _clear_cache(self, exchange: Exchange) -> None:
        if not self._config.allow_cache_clear:
            raise RequestRejected(
                "gateway.allow_cache_clear is false; serve with --set gateway.allow_cache_clear="
                "true where only operators reach this address",
                status=403,
                code="cache_clear_not_allowed",
            )
        if exchange.media_type != b"application/json":
            # A page in an operator's browser can send everything else without asking.
            raise unsupported_media_type(exchange.media_type)
        await exchange.read_body(self._config)
        generation = self._backend.clear_cache()
        logger.info("%s cleared the cache: generation %d", exchange.request_id, generation)
        await exchange.respond(200, msgspec.json.encode({"generation": generation}))

    async def _version_info(self, exchange: Exchange) -> None:
        body = {
            "version": self._version,
            "model": self._model_name,
            "status": self._backend.status(),
            "deployment": self._backend.deployment(),
        }
        await exchange.respond(200, msgspec.json.encode(body, enc_hook=str))


def create_app(
    backend: Backend,
    tokenizer: Tokenizer,
    config: GatewayConfig,
    *,
    model_name: str,
    version: str,
) -> GatewayApp:
    """The application that serves `backend` under `model_name`."""
    return GatewayApp(backend, tokenizer, config, model_name=model_name, version=version)
