"""The knobs of a deployment whose workers are vLLM servers: where they are, or how they start."""

import re
from typing import Literal

import msgspec

from baton.core.ids import Direction, Role
from baton.errors import ConfigError

_URL = re.compile(r"https?://[^\s/,]+(:\d+)?/?")
_ENDPOINT = re.compile(r"(tcp://[^\s,]+:\d+|ipc://[^\s,]+)")
_PORT = re.compile(r"://[^/]*:(\d+)/?$")
_FORM = "write URL[,events=tcp://HOST:PORT[,replay=tcp://HOST:PORT]][,control=tcp://HOST:PORT]"


class VllmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vLLM servers behind the gateway. With URLs it attaches to servers that users run."""

    connector: Literal["nixl", "baton"] = "nixl"
    """Whose transaction hands K/V over: vLLM's own NixlConnector, or Baton's connector."""
    prefill_urls: tuple[str, ...] = ()
    """Servers that compute prompts, each URL[,events=ENDPOINT[,replay=ENDPOINT]]; with any URL
    nothing is started here."""
    decode_urls: tuple[str, ...] = ()
    mixed_urls: tuple[str, ...] = ()
    """Servers that serve whole requests."""
    direction: Direction = Direction.PULL
    """baton: decode reads from the source, or the source writes while it computes."""
    key_folder: str = ""
    """baton: folder with member.json and issuer.json; "": made for servers that start here."""
    python: str = ""
    """Python of the environment that has vLLM, for servers that are started here; "": this one."""
    arguments: tuple[str, ...] = ()
    """More arguments of every server that is started here."""
    prefill_arguments: tuple[str, ...] = ()
    decode_arguments: tuple[str, ...] = ()
    prefill_tp: int = 1
    """Tensor-parallel ranks of each prefill server that is started here; with connector baton they
    may be more or fewer than decode's."""
    decode_tp: int = 1
    """The same of each decode server, and of each mixed one."""
    first_port: int = 8100
    """Of servers that are started here: this and the next ones, side channels and events behind."""
    min_split_tokens: int = 0
    """A prompt with fewer tokens that its decode server does not hold is computed there."""
    api_key_variable: str = ""
    """Environment variable with the key of servers that want one, for requests that no client
    sent; a client's own Authorization is passed on."""
    probe: bool = True
    """A pair hands one small prompt over before it gets any request."""
    scrape_ms: int = 1_000
    """How often health and load of each server are asked for."""
    silence_ms: int = 20_000
    """A server that accepts connections and has not answered /health for so long is down; one that
    refuses them is down at once."""

    def tp_of(self, role: Role) -> int:
        """Ranks of a server of this role that is started here."""
        return self.prefill_tp if role is Role.PREFILL else self.decode_tp

    @property
    def is_attached(self) -> bool:
        """The servers are run by somebody else."""
        return bool(self.prefill_urls or self.decode_urls or self.mixed_urls)


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where one vLLM server answers, and where it publishes its K/V events."""

    role: Role
    url: str
    control: str = ""
    """Of Baton's connector, if the server has it."""
    events: str = ""
    replay: str = ""


def addresses_of(settings: VllmSettings) -> tuple[ServerAddress, ...]:
    """Every attached server. Raises ConfigError for one that cannot be read, or comes twice."""
    found = [
        _address(role, text, knob)
        for role, knob, texts in (
            (Role.PREFILL, "vllm.prefill_urls", settings.prefill_urls),
            (Role.DECODE, "vllm.decode_urls", settings.decode_urls),
            (Role.MIXED, "vllm.mixed_urls", settings.mixed_urls),
        )
        for text in texts
    ]
    urls = [one.url for one in found]
    for url in urls:
        if urls.count(url) > 1:
            raise ConfigError(f"vllm: {url} is named {urls.count(url)} times; name a server once")
    return tuple(found)


def _address(role: Role, text: str, knob: str) -> ServerAddress:
    url, *options = [part.strip() for part in text.split(",")]
    if not _URL.fullmatch(url):
        raise ConfigError(f"{knob}: {text!r} is not the base URL of a server; {_FORM}")
    _check_port(url, text, knob)
    named: dict[str, str] = {}
    for option in options:
        name, _, value = option.partition("=")
        if name not in ("events", "replay", "control") or not _ENDPOINT.fullmatch(value):
            raise ConfigError(f"{knob}: {option!r} of {text!r} is not understood; {_FORM}")
        _check_port(value, text, knob)
        named[name] = value
    if "replay" in named and "events" not in named:
        raise ConfigError(f"{knob}: {text!r} replays events that nobody reads; {_FORM}")
    return ServerAddress(role=role, url=url.rstrip("/"), **named)


def _check_port(endpoint: str, text: str, knob: str) -> None:
    found = _PORT.search(endpoint)
    if found and not (len(found[1]) <= 5 and 1 <= int(found[1]) <= 65535):
        raise ConfigError(f"{knob}: {text!r} has port {found[1]}; use 1 to 65535")


def check_vllm(settings: VllmSettings, is_engine: bool) -> None:
    """Raise ConfigError for settings that cannot serve; `is_engine`: vLLM serves."""
    if settings.is_attached and not is_engine:
        raise ConfigError("vllm: URLs of servers are named; add --engine vllm to serve them")
    if not 1 <= settings.first_port <= 65000:
        raise ConfigError(f"vllm.first_port: {settings.first_port}; use 1 to 65000")
    for name in ("min_split_tokens", "scrape_ms", "silence_ms"):
        least = 0 if name == "min_split_tokens" else 10
        if getattr(settings, name) < least:
            raise ConfigError(f"vllm.{name}: {getattr(settings, name)}; use {least} or more")
    for name in ("prefill_tp", "decode_tp"):
        if getattr(settings, name) < 1:
            raise ConfigError(f"vllm.{name}: {getattr(settings, name)}; use 1 or more")
    addresses_of(settings)
    if not settings.is_attached or settings.mixed_urls:
        return
    for name in ("prefill_urls", "decode_urls"):
        if not getattr(settings, name):
            raise ConfigError(
                f"vllm.{name}: none; name at least one prefill and one decode server, or mixed ones"
            )
