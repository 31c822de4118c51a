"""The two ways to name K/V between a pair of servers, as the fields that vLLM carries for both."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from baton.runtime.vllm.servers import Server

Params = Mapping[str, Any]


class LegIds(msgspec.Struct, frozen=True, kw_only=True):
    """Whose handoff this is; every attempt has a name of its own."""

    request_id: str
    tenant_id: str
    attempt: int

    @property
    def leg_id(self) -> str:
        """What servers call this attempt."""
        return self.request_id if self.attempt == 1 else f"{self.request_id}-{self.attempt}"


class Connector(Protocol):
    """What goes into `kv_transfer_params` of each leg."""

    def prefill_params(self, ids: LegIds, prefill: Server, decode: Server) -> Params:
        """Of the prefill leg."""
        ...

    def decode_params(self, ids: LegIds, decode: Server, answered: object) -> Params | None:
        """Of the decode leg, from what the prefill leg answered; None where that is no handle."""
        ...

    def release_params(self, params: Params) -> Params | None:
        """Of a request that is refused, so that its decode server gives the handle back; None where
        nothing has to be given back."""
        ...


class NixlConnector:
    """vLLM's own NixlConnector: the prefill server leases its blocks, and decode reads them."""

    _HANDLE = ("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")

    def prefill_params(self, ids: LegIds, prefill: Server, decode: Server) -> Params:
        """Of the prefill leg."""
        return {
            "do_remote_decode": True,
            "do_remote_prefill": False,
            **dict.fromkeys(self._HANDLE),
        }

    def decode_params(self, ids: LegIds, decode: Server, answered: object) -> Params | None:
        """Of the decode leg; a server without a connector answers nothing to build it from."""
        if not isinstance(answered, dict) or not answered.get("do_remote_prefill"):
            return None
        return answered if all(answered.get(name) for name in self._HANDLE) else None

    def release_params(self, params: Params) -> Params | None:
        """The handle itself: a decode server that refuses a request notifies its source."""
        return params
