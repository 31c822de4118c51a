"""Who signs capabilities and who believes them. A key is never part of a repr or of an error."""

from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from baton.errors import ConfigError

KEY_NBYTES = 32
MIN_SECRET_NBYTES = 16


class Signer(Protocol):
    """Signs under one issuer's name."""

    @property
    def issuer(self) -> str:
        """The name under which verifiers know the key."""

    def sign(self, data: bytes) -> bytes:
        """The signature over `data`."""


class Verifier(Protocol):
    """Knows the issuers that this process trusts."""

    def verify(self, issuer: str, data: bytes, signature: bytes) -> bool:
        """True when `issuer` is trusted and signed exactly `data`; never raises."""


class Ed25519Signer:
    """Holds a private key. The 32 secret bytes come from the host: nothing here draws any."""

    def __init__(self, issuer: str, private_key: bytes) -> None:
        _check_key(private_key, "private_key")
        self._issuer = issuer
        self._private_key = private_key
        self._key = Ed25519PrivateKey.from_private_bytes(private_key)

    @property
    def issuer(self) -> str:
        """The name under which verifiers know the key."""
        return self._issuer

    @property
    def public_key(self) -> bytes:
        """What verifiers need: 32 bytes that may be published."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        """The signature over `data`."""
        return self._key.sign(data)

    def __reduce__(self) -> tuple[type, tuple[str, bytes]]:
        return Ed25519Signer, (self._issuer, self._private_key)

    def __repr__(self) -> str:
        return f"Ed25519Signer({self._issuer!r})"


class Ed25519Verifier:
    """Trusts one issuer by its public key; it can check signatures and make none."""

    def __init__(self, issuer: str, public_key: bytes) -> None:
        _check_key(public_key, "public_key")
        self._issuer = issuer
        self._public_key = public_key
        self._key = Ed25519PublicKey.from_public_bytes(public_key)

    def verify(self, issuer: str, data: bytes, signature: bytes) -> bool:
        """True when `issuer` is trusted and signed exactly `data`; never raises."""
        if issuer != self._issuer:
            return False
        try:
            self._key.verify(signature, data)
        except InvalidSignature:
            return False
        return True

    def __reduce__(self) -> tuple[type, tuple[str, bytes]]:
        return Ed25519Verifier, (self._issuer, self._public_key)

    def __repr__(self) -> str:
        return f"Ed25519Verifier({self._issuer!r})"


class HmacKey:
    """A shared secret: signs and verifies. For one trust domain, in which a worker may mint."""

    def __init__(self, issuer: str, secret: bytes) -> None:
        if len(secret) < MIN_SECRET_NBYTES:
            raise ConfigError(
                f"secret of issuer {issuer!r} has {len(secret)} bytes; "
                f"use at least {MIN_SECRET_NBYTES}"
            )
        self._issuer = issuer
        self._secret = secret

    @property
    def issuer(self) -> str:
        """The name under which verifiers know the key."""
        return self._issuer

    def sign(self, data: bytes) -> bytes:
        """The signature over `data`: HMAC-SHA256."""
        return self._mac(data).finalize()

    def verify(self, issuer: str, data: bytes, signature: bytes) -> bool:
        """True when `issuer` is trusted and signed exactly `data`; never raises."""
        if issuer != self._issuer:
            return False
        try:
            self._mac(data).verify(signature)
        except InvalidSignature:
            return False
        return True

    def _mac(self, data: bytes) -> HMAC:
        mac = HMAC(self._secret, SHA256())
        mac.update(data)
        return mac

    def __repr__(self) -> str:
        return f"HmacKey({self._issuer!r})"


def _check_key(key: bytes, name: str) -> None:
    if len(key) != KEY_NBYTES:
        raise ConfigError(f"{name} has {len(key)} bytes; an Ed25519 key has {KEY_NBYTES}")
