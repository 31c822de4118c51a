"""What the router hands to the gateway for one request, in order: tokens, then one end."""

import msgspec

from baton.core.ids import Mode
from baton.core.request import Token, Usage


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """The first token is about to be delivered; says which mode the request ran in."""

    mode: Mode
    prefill_worker: str
    decode_worker: str
    cached_tokens: int = 0


class Tokens(msgspec.Struct, frozen=True, kw_only=True, tag="tokens"):
    """New tokens, contiguous in `index`; none is repeated and none is skipped."""

    tokens: tuple[Token, ...]


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """Success; `finish_reason` is "stop", "length" or "cancelled"."""

    finish_reason: str
    usage: Usage
    kv_digest: str = ""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """A typed failure; `status` is the HTTP status it maps to when nothing was sent yet."""

    code: str
    message: str
    status: int = 500
    retry_after_s: float | None = None


Delivery = Started | Tokens | Finished | Failed
