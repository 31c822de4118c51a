"""The router's signing key: drawn at start, in memory only; workers get the public half."""

import secrets

import msgspec

from baton.protocol.signing import KEY_NBYTES, Ed25519Signer, Ed25519Verifier


class IssuerKey(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a worker believes: one life of the router, by its public key."""

    issuer: str
    public_key: bytes

    def verifier(self) -> Ed25519Verifier:
        """What checks that issuer's signatures; it can make none."""
        return Ed25519Verifier(self.issuer, self.public_key)


def mint_signer() -> Ed25519Signer:
    """A new key under a new issuer id, so that no nonce of an earlier router counts here."""
    return Ed25519Signer(f"router/{secrets.token_hex(8)}", secrets.token_bytes(KEY_NBYTES))


def published(signer: Ed25519Signer) -> IssuerKey:
    """The half of the key that may leave this process."""
    return IssuerKey(issuer=signer.issuer, public_key=signer.public_key)
