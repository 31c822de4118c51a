"""The two ways to name K/V between a pair of servers, as the fields that vLLM carries for both."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from baton.core.messages import TraceMark
from baton.integrations.vllm.info import ConnectorInfo
from baton.runtime.vllm.http_client import HttpClient
from baton.runtime.vllm.leg import LegFailed
from baton.runtime.vllm.servers import Server

Params = Mapping[str, Any]
RELEASE_MODEL = "baton-gives-this-handle-back"
"""No server has a model of this name, so it refuses the request and notifies the source."""
GIVE_BACK_S = 10.0
ROUTE_EPOCH = 1
"""Of every ticket: a gateway that starts again signs with nonces that are newer."""


class LegIds(msgspec.Struct, frozen=True, kw_only=True):
    """Whose handoff this is; every attempt has a name of its own."""

    request_id: str
    tenant_id: str
    attempt: int

    @property
    def leg_id(self) -> str:
        """What servers call this attempt."""
        return self.request_id if self.attempt == 1 else f"{self.request_id}-{self.attempt}"


class WantedWord(msgspec.Struct, frozen=True, kw_only=True):
    """A handoff that is to be told of."""

    params: Params
    """Of its decode leg."""
    request_id: str
    generation: int
    answered_us: int
    """When the first event of the answer was here, of this host's clock."""


class HandoffWord(msgspec.Struct, frozen=True, kw_only=True):
    """What a destination said of one handoff: steps on this host's clock, or why there are none."""

    marks: tuple[TraceMark, ...] = ()
    failed: str = ""
    """Why it was not published, where that is what the marks say."""
    missing: str = ""
    """silent: no answer in time; no_record: not of this handoff, or not of each leg."""


class Connector(Protocol):
    """What goes into `kv_transfer_params` of each leg."""

    def prefill_params(self, ids: LegIds, prefill: Server, decode: Server) -> Params:
        """Of the prefill leg."""
        ...

    def decode_params(self, asked: Params, answered: object) -> Params | None:
        """Of the decode leg, from what the prefill leg got and answered; None: it is no handle."""
        ...

    @property
    def is_together(self) -> bool:
        """Both legs go out at once: the source writes into blocks that decode has by then."""
        ...

    def early_params(self, asked: Params) -> Params:
        """Of a decode leg that goes out with its prefill leg."""
        ...

    async def meet(self, server: Server) -> None:
        """Learn what handles need of a server's new life. Raises BatonError where it cannot."""
        ...

    def info(self, server: Server) -> ConnectorInfo | None:
        """What the connector of a server's life said of itself; None where nothing does."""
        ...

    async def give_back(self, client: HttpClient, decode: Server, params: Params) -> bool:
        """Tell the source that nobody will read this handle; True when it has heard."""
        ...

    @property
    def is_telling(self) -> bool:
        """Destinations can be asked how a handoff went."""
        ...

    async def words(self, wanted: Sequence[WantedWord], timeout_ms: int) -> list[HandoffWord]:
        """What destinations say, one word each, within about that time. Raises BatonError."""
        ...


class NixlConnector:
    """vLLM's own NixlConnector: the prefill server leases its blocks, and decode reads them."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    _HANDLE = ("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")

    def prefill_params(self, ids: LegIds, prefill: Server, decode: Server) -> Params:
        """Of the prefill leg."""
        return {
            "do_remote_decode": True,
            "do_remote_prefill": False,
            **dict.fromkeys(self._HANDLE),
        }

    def decode_params(self, asked: Params, answered: object) -> Params | None:
        """Of the decode leg; a server without a connector answers nothing to build it from."""
        if not isinstance(answered, dict) or not answered.get("do_remote_prefill"):
            return None
        return answered if all(answered.get(name) for name in self._HANDLE) else None

    @property
    def is_together(self) -> bool:
        """Decode reads what the prefill leg has answered."""
        return False

    def early_params(self, asked: Params) -> Params:
        """There are none before the prefill leg has answered."""
        raise AssertionError("a NIXL handle is known only after its prefill")

    async def meet(self, server: Server) -> None:
        """Servers meet by themselves, at their first transfer."""

    def info(self, server: Server) -> ConnectorInfo | None:
        """vLLM's own says nothing of itself to a gateway."""
        return None

    async def give_back(self, client: HttpClient, decode: Server, params: Params) -> bool:
        """A decode server that refuses a request notifies the source of its handle."""
        body = {
            "model": RELEASE_MODEL,
            "prompt": [1],
            "max_tokens": 1,
            "kv_transfer_params": dict(params),
        }
        headers = {"content-type": "application/json", **self._headers}
        data = msgspec.json.encode(body)
        try:
            async with client.post(
                "release", decode, "/v1/completions", data, headers, GIVE_BACK_S
            ):
                return False  # it served a model that nobody has
        except LegFailed as failed:
            return failed.status == 404

    @property
    def is_telling(self) -> bool:
        """It says nothing of single transfers."""
        return False

    async def words(self, wanted: Sequence[WantedWord], timeout_ms: int) -> list[HandoffWord]:
        """There are none."""
        return [HandoffWord(missing="no_record")] * len(wanted)
