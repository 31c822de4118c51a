"""Who a request belongs to: tenants never share cached prefixes (0x09G)."""

import hashlib
import secrets
from pathlib import Path

from baton.config import GatewayConfig
from baton.errors import ConfigError, RequestRejected

MIN_KEY_NBYTES = 16
_DIGEST_NBYTES = 16
_MAX_NAME_NBYTES = 8192

HeaderLines = list[tuple[bytes, bytes]]


class Tenants:
    """Names the tenant of a request by a keyed digest; what the client sent is never kept.

    With the digest alone nobody can check a guessed token, so it may appear in traces. "" is the
    tenant of all requests that name none.
    """

    def __init__(self, config: GatewayConfig) -> None:
        """Raises ConfigError when the key file cannot be used."""
        self._mode = config.tenants
        self._header = config.tenant_header.encode()
        self._key = _read_key(config.tenant_key_file) if config.tenant_key_file else _draw_key()

    def of(self, headers: HeaderLines) -> str:
        """The tenant that these headers stand for. Raises RequestRejected where two are named."""
        if self._mode == "api_key":
            return self._digest(_bearer_token(_only(headers, b"authorization")))
        if self._mode == "header":
            return self._digest(_only(headers, self._header))
        return ""

    def claimed_in(self, headers: HeaderLines) -> str:
        """The name of the tenant header where a client sends it and it is not believed, or ""."""
        if self._mode != "header" and any(name == self._header for name, _ in headers):
            return self._header.decode()
        return ""

    def _digest(self, name: bytes) -> str:
        if not name:
            return ""
        # The mode is part of it: a proxy's name for a tenant is not a token that a client knows.
        state = hashlib.blake2b(key=self._key, digest_size=_DIGEST_NBYTES)
        state.update(self._mode.encode() + b":" + name)
        return state.hexdigest()


def _only(headers: HeaderLines, name: bytes) -> bytes:
    """The value of a header that may come once: of two, one may be a client's own."""
    values = [value.strip() for key, value in headers if key == name]
    shown = name.decode()
    if len(values) > 1:
        raise RequestRejected(
            f"{shown} comes {len(values)} times; send it once",
            param=shown,
            code="ambiguous_tenant",
        )
    if values and len(values[0]) > _MAX_NAME_NBYTES:
        raise RequestRejected(
            f"{shown} has {len(values[0])} bytes; use at most {_MAX_NAME_NBYTES}",
            param=shown,
            code="invalid_tenant",
        )
    return values[0] if values else b""


def _bearer_token(value: bytes) -> bytes:
    scheme, _, token = value.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _draw_key() -> bytes:
    return secrets.token_bytes(hashlib.blake2b.MAX_KEY_SIZE)


def check_key_file(config: GatewayConfig) -> None:
    """Raise ConfigError where the key file cannot be used. A pipe is left to whoever keeps the key:
    it can be read only once."""
    if config.tenant_key_file and not Path(config.tenant_key_file).is_fifo():
        _read_key(config.tenant_key_file)


def _read_key(path: str) -> bytes:
    try:
        secret = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"gateway.tenant_key_file {path} cannot be read: {error.strerror}; name a file of "
            f"{MIN_KEY_NBYTES} secret bytes or more"
        ) from error
    if len(secret) < MIN_KEY_NBYTES:
        raise ConfigError(
            f"gateway.tenant_key_file {path} has {len(secret)} bytes; "
            f"use {MIN_KEY_NBYTES} or more, as from /dev/urandom"
        )
    return hashlib.blake2b(secret).digest()
