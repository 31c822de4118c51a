"""The server under load: where it is, what it is asked for, and what it was found to take."""

from enum import StrEnum

import msgspec

from baton.errors import ConfigError

BEARER = "Authorization"


class Endpoint(StrEnum):
    """Which of the two generation endpoints is called."""

    COMPLETIONS = "completions"
    CHAT = "chat"

    @property
    def path(self) -> str:
        """The path under the base URL."""
        return "/v1/completions" if self is Endpoint.COMPLETIONS else "/v1/chat/completions"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """An OpenAI-compatible server. An empty `model` stands for the only one that it serves."""

    base_url: str
    model: str = ""
    endpoint: Endpoint = Endpoint.COMPLETIONS
    headers: dict[str, str] = {}
    api_key: str = ""

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise ConfigError(
                f"--url {self.base_url!r} has no scheme; write it like http://127.0.0.1:8000"
            )

    def url(self, path: str) -> str:
        """The address of a path; a base URL may already end in /v1."""
        base = self.base_url.rstrip("/")
        return base.removesuffix("/v1") + path

    @property
    def all_headers(self) -> dict[str, str]:
        """What every request carries."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self.api_key:
            headers[BEARER] = f"Bearer {self.api_key}"
        return headers | self.headers


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a server was found to take; `inspect_target` finds it out with a few short requests."""

    model: str
    max_model_len: int | None = None
    vocab_size: int = 0
    """Prompts are lists of token ids below it; 0 where the server takes only text."""
    extra_fields: frozenset[str] = frozenset()
    """Fields beyond the plain API that the server did not refuse."""
    has_usage: bool = True
    tokens_per_word: float = 1.0
    overhead_tokens: float = 0.0
    """What a prompt of no words has: a beginning-of-text token, a chat template."""

    @property
    def prompt_kind(self) -> str:
        """How prompts of a wanted length are made, in words."""
        if self.vocab_size:
            return "token ids"
        return (
            f"filler words ({self.tokens_per_word:.3g} tokens a word "
            f"+ {self.overhead_tokens:.3g} measured)"
        )
