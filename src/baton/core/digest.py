"""Content digests: identity is a digest, never a name."""

import hashlib

import msgspec

_ENCODER = msgspec.json.Encoder(order="deterministic")


def digest(value: object) -> str:
    """Return the 128-bit hex digest of a msgspec-encodable value, independent of key order."""
    return hashlib.blake2b(_ENCODER.encode(value), digest_size=16).hexdigest()
