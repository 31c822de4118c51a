"""POST /workers/drain: an operator takes a worker out of a running deployment."""

import msgspec

from baton.config import GatewayConfig
from baton.errors import RequestRejected
from baton.runtime.gateway.backend import Backend
from baton.runtime.gateway.edge import require_json
from baton.runtime.gateway.exchange import Exchange

_MAX_TIMEOUT_S = 86_400.0


class DrainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which worker, and how long its open streams may take."""

    worker: str
    timeout_s: float = 60.0


async def drain_worker(exchange: Exchange, backend: Backend, config: GatewayConfig) -> None:
    """Begin to drain and answer at once; /version shows the worker until it has gone."""
    if not config.allow_drain:
        raise RequestRejected(
            "gateway.allow_drain is false; serve with --set gateway.allow_drain=true where only "
            "operators reach this address",
            status=403,
            code="drain_not_allowed",
        )
    require_json(exchange)  # a page in an operator's browser can send everything else
    body = await exchange.read_body(config)
    try:
        order = msgspec.json.decode(body, type=DrainRequest)
    except msgspec.MsgspecError as error:
        raise RequestRejected(
            f'the body is no order to drain: {error}; send {{"worker": "decode-1"}}',
            param="worker",
        ) from error
    if not 0 <= order.timeout_s <= _MAX_TIMEOUT_S:
        raise RequestRejected(
            f"timeout_s {order.timeout_s} is not between 0 and {_MAX_TIMEOUT_S:g}",
            param="timeout_s",
        )
    backend.drain_worker(order.worker, order.timeout_s)
    await exchange.respond(202, msgspec.json.encode({"worker": order.worker, "draining": True}))
