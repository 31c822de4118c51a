"""Asks a running Baton what its K/V pool holds, over HTTP."""

import msgspec

from baton.nodes.cache_view import CacheView
from baton.telemetry.gateway_answer import ask_gateway


class _Cleared(msgspec.Struct, frozen=True):
    generation: int


def fetch_cache(url: str) -> CacheView:
    """What lives where. Raises ConfigError for an address at which no Baton answers."""
    return ask_gateway(url, "/cache", CacheView)


def clear_cache(url: str) -> int:
    """Void all history; returns the new generation. Raises BatonError where that is refused."""
    return ask_gateway(url, "/cache/clear", _Cleared, b"{}").generation
