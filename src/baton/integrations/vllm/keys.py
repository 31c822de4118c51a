"""Keys of one deployment: a control key pair that its members share, and the issuer's signing key.

`python -m baton.integrations.vllm.keys FOLDER` writes `member.json`, which every connector and the
gateway get, and `issuer.json`, which the gateway alone gets: members can check tickets and mint
none.
"""

import os
import secrets
import sys
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import zmq

from baton.errors import ConfigError
from baton.protocol.signing import Ed25519Signer, Ed25519Verifier

MEMBER_FILE = "member.json"
ISSUER_FILE = "issuer.json"
_Keys = TypeVar("_Keys", bound=msgspec.Struct)


class MemberKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a member holds: the CURVE pair of the deployment and the issuer's public key."""

    control_public: str
    control_secret: str
    issuer: str
    issuer_public_key: str
    """32 bytes in hexadecimal."""

    def verifier(self) -> Ed25519Verifier:
        """Believes the deployment's issuer and nobody else."""
        return Ed25519Verifier(self.issuer, _unhex("issuer_public_key", self.issuer_public_key))

    def __repr__(self) -> str:
        return f"MemberKeys(issuer={self.issuer!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("issuer", self.issuer)]


class IssuerKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the gateway holds beside: the signing key."""

    issuer: str
    private_key: str

    def signer(self) -> Ed25519Signer:
        """Signs tickets under the issuer's name."""
        return Ed25519Signer(self.issuer, _unhex("private_key", self.private_key))

    def __repr__(self) -> str:
        return f"IssuerKeys(issuer={self.issuer!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("issuer", self.issuer)]


def mint_keys(folder: Path, issuer: str = "gateway") -> tuple[MemberKeys, IssuerKeys]:
    """Write fresh keys into `folder`, readable by the owner alone. Existing ones are refused."""
    if not zmq.has("curve"):
        raise ConfigError("this build of pyzmq has no CURVE; install pyzmq from a wheel")
    folder.mkdir(parents=True, exist_ok=True)
    public, secret = zmq.curve_keypair()
    private = secrets.token_bytes(32)
    signer = Ed25519Signer(issuer, private)
    member = MemberKeys(
        control_public=public.decode(),
        control_secret=secret.decode(),
        issuer=issuer,
        issuer_public_key=signer.public_key.hex(),
    )
    keys = IssuerKeys(issuer=issuer, private_key=private.hex())
    _write(folder / MEMBER_FILE, member)
    _write(folder / ISSUER_FILE, keys)
    return member, keys


def load_member(path: str | Path) -> MemberKeys:
    """Read a member's keys. Raises ConfigError, which never shows them."""
    return _load(Path(path), MemberKeys)


def load_issuer(path: str | Path) -> IssuerKeys:
    """Read the issuer's keys. Raises ConfigError, which never shows them."""
    return _load(Path(path), IssuerKeys)


def _write(path: Path, keys: msgspec.Struct) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} exists; remove it to replace the deployment's keys") from None
    with os.fdopen(handle, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(keys)))


def _load(path: Path, kind: type[_Keys]) -> _Keys:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}; make it with "
            "`python -m baton.integrations.vllm.keys FOLDER`"
        ) from error
    except (msgspec.MsgspecError, RecursionError):
        raise ConfigError(f"{path} is not a {kind.__name__} file; make it again") from None


def _unhex(field: str, text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ConfigError(f"{field} is not hexadecimal; make the key files again") from None


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m baton.integrations.vllm.keys FOLDER")
    try:
        mint_keys(Path(sys.argv[1]))
    except ConfigError as failure:
        sys.exit(str(failure))
