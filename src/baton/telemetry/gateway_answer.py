"""Asks a running Baton one thing over HTTP, and says what stood in the way."""

import http.client
import urllib.error
import urllib.parse
import urllib.request
from typing import TypeVar

import msgspec

from baton.errors import BatonError, ConfigError

_TIMEOUT_S = 10.0
_EXAMPLE = "http://127.0.0.1:8000"
_MAX_NBYTES = 64 << 20
_UNKNOWN_PATH = "unknown_path"
"""A server that knows the question names in another code what it lacks."""

T = TypeVar("T")


class NothingThere(ConfigError):
    """A Baton answers, and has nothing of that name."""


class _Refusal(msgspec.Struct, frozen=True):
    message: str
    code: str | int | None = None


class _Refused(msgspec.Struct, frozen=True):
    error: _Refusal


def fetch(url: str, path: str) -> bytes:
    """The bytes of an answer to a GET. Raises ConfigError where no Baton answers."""
    return _ask(url, path)


def ask_gateway(url: str, path: str, kind: type[T], body: bytes | None = None) -> T:
    """The answer of the Baton at `url` to `path`, as a `kind`; with `body` it is a POST.

    Raises ConfigError for an address at which no Baton answers, BatonError where it refuses.
    """
    data = _ask(url, path, body)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ConfigError, UnicodeDecodeError, RecursionError) as error:
        raise _not_baton(url, f"its answer is of another form: {error}") from error


def _not_baton(url: str, found: str) -> ConfigError:
    return ConfigError(
        f"--url {url} is not a Baton server of this version ({found}); "
        "name the address that `baton serve` printed"
    )


def _ask(url: str, path: str, body: bytes | None = None) -> bytes:
    _check(url)
    address = url.rstrip("/").removesuffix("/v1") + path
    try:
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        # No proxy: the gateway is meant, not whoever the environment names for the web.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            return bytes(answer.read(_MAX_NBYTES))
    except urllib.error.HTTPError as error:
        raise _refusal(url, path, error) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        raise ConfigError(
            f"--url {url} does not answer: {reason}; start it with `baton serve`, or name another"
        ) from error


def _check(url: str) -> None:
    """Refuse what is no address of a server, before anybody is asked for it."""
    if "://" not in url:
        raise ConfigError(f"--url {url!r} has no scheme; write it like {_EXAMPLE}")
    scheme = url.partition("://")[0]
    if scheme.lower() not in ("http", "https"):
        raise ConfigError(
            f"--url {url!r} has the scheme {scheme!r}; use http or https, like {_EXAMPLE}"
        )
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _malformed(url, str(error)) from None
    if not host:
        raise _malformed(url, "no host")
    if port == 0:
        raise _malformed(url, "port 0")
    if any(one.isspace() or not one.isprintable() for one in url):
        raise _malformed(url, "white space")


def _malformed(url: str, what: str) -> ConfigError:
    return ConfigError(f"--url {url!r} is malformed ({what}); write it like {_EXAMPLE}")


def _refusal(url: str, path: str, error: urllib.error.HTTPError) -> BatonError:
    with error:
        data = error.read(_MAX_NBYTES)
    try:
        refused = msgspec.json.decode(data, type=_Refused).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _not_baton(url, f"{path} answers {error.code}")
    if error.code != 404:
        return BatonError(f"{url} refuses {path}: {refused.message}")
    if isinstance(refused.code, str) and refused.code != _UNKNOWN_PATH:
        return NothingThere(refused.message)
    return NothingThere(str(_not_baton(url, f"{path} answers 404: {refused.message}")))
