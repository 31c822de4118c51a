"""The tokenizer of a model folder: encoding, chat template, and decoding token by token."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import msgspec
import tokenizers

from baton.errors import ConfigError, RequestRejected
from baton.runtime.gateway.detokenizer import ByteDetokenizer, Detokenizer, WindowDetokenizer
from baton.runtime.gateway.template import compile_template

CONTEXT_TOKENS = 6
"""Prompt tokens that prime a detokenizer: enough for one character and one word boundary."""


class Tokenizer:
    """One model's tokenizer. Encoding and decoding are safe to call from several threads."""

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        chat_template: str = "",
        special_tokens: dict[str, str] | None = None,
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._special_ids = frozenset(
            token_id
            for token_id, token in tokenizer.get_added_tokens_decoder().items()
            if token.special
        )
        self._byte_level = "ByteLevel" in _decoder_types(tokenizer)
        self._bytes_by_id: dict[int, bytes] = {}
        self._render: Callable[..., str] | None = None
        if chat_template:
            self._render = compile_template(chat_template, special_tokens or {})
        self.vocab_size: int = tokenizer.get_vocab_size(with_added_tokens=True)
        longest = max(map(len, tokenizer.get_vocab()), default=1)
        # A metaspace token may swallow characters that normalisation drops, hence the slack.
        self.max_token_chars: int = 4 * longest

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read a model folder. Raises ConfigError naming the file that is missing or wrong."""
        file = path / "tokenizer.json"
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # `tokenizers` raises bare Exception
            raise ConfigError(
                f"{file}: not a usable tokenizer: {error}; the model folder needs tokenizer.json"
            ) from error
        settings = _read_json(path / "tokenizer_config.json")
        special_tokens = _special_tokens(_read_json(path / "special_tokens_map.json"))
        special_tokens.update(_special_tokens(settings))
        template_file = path / "chat_template.jinja"
        if template_file.exists():
            template = template_file.read_text(encoding="utf-8")
        else:
            template = _template_in(settings)
        try:
            return cls(tokenizer, chat_template=template, special_tokens=special_tokens)
        except jinja2.TemplateError as error:
            raise ConfigError(f"{path}: the chat template does not compile: {error}") from error

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`; `add_special_tokens` puts the model's own BOS in front."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of a whole sequence."""
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens)
        return text

    @property
    def has_chat_template(self) -> bool:
        """False for a base model: /v1/chat/completions cannot be served."""
        return self._render is not None

    def apply_chat_template(
        self, messages: list[dict[str, Any]], add_generation_prompt: bool = True, **kwargs: Any
    ) -> str:
        """The prompt text of a conversation. Raises RequestRejected if the template refuses it."""
        if self._render is None:
            raise RequestRejected(
                "this model has no chat template; use /v1/completions", param="messages"
            )
        try:
            return self._render(
                messages=messages, add_generation_prompt=add_generation_prompt, **kwargs
            )
        except Exception as error:  # whatever a template does wrong is about these messages
            raise RequestRejected(
                f"the model's chat template refused these messages: {error}", param="messages"
            ) from error

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token stands for; empty for an id without a token."""
        cached = self._bytes_by_id.get(token_id)
        if cached is None:
            cached = self._bytes_by_id[token_id] = self._compute_bytes(token_id)
        return cached

    def is_special(self, token_id: int) -> bool:
        """True for control tokens, which are not part of the text."""
        return token_id in self._special_ids

    def detokenizer(
        self, prompt_token_ids: Sequence[int] = (), *, skip_special_tokens: bool = True
    ) -> Detokenizer:
        """A detokenizer for the text that follows this prompt."""
        skipped = self._special_ids if skip_special_tokens else frozenset[int]()
        context = [i for i in prompt_token_ids[-CONTEXT_TOKENS:] if i not in self._special_ids]
        if self._byte_level:
            if not skipped:
                return ByteDetokenizer(self.token_bytes, context)
            return ByteDetokenizer(
                lambda token_id: b"" if token_id in skipped else self.token_bytes(token_id),
                context,
            )
        return WindowDetokenizer(
            lambda ids: self.decode(ids, skip_special_tokens=skip_special_tokens), context
        )

    def _compute_bytes(self, token_id: int) -> bytes:
        token = self._tokenizer.id_to_token(token_id)
        if token is None:
            return b""
        if self._byte_level:
            # As in the library: a token with any character outside the map stands for itself.
            try:
                return bytes(map(_BYTE_OF_CHAR.__getitem__, token))
            except KeyError:
                return token.encode()
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
        return token.replace("▁", " ").encode()


def _byte_of_char() -> dict[str, int]:
    """The printable stand-in characters of byte-level vocabularies (as in GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update((chr(256 + position), byte) for position, byte in enumerate(others))
    return table


_BYTE_OF_CHAR = _byte_of_char()


def _decoder_types(tokenizer: tokenizers.Tokenizer) -> set[str]:
    decoder = msgspec.json.decode(tokenizer.to_str()).get("decoder") or {}
    return {decoder.get("type", ""), *(d["type"] for d in decoder.get("decoders", ()))}


def _read_json(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{file}: not valid JSON: {error}") from error


def _special_tokens(settings: dict[str, Any]) -> dict[str, str]:
    found = {}
    for name, value in settings.items():
        if name.endswith("_token"):
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                found[name] = text
    return found


def _template_in(settings: dict[str, Any]) -> str:
    template = settings.get("chat_template") or ""
    if isinstance(template, list):  # several named templates
        by_name = {entry["name"]: entry["template"] for entry in template}
        template = by_name.get("default", "")
    return str(template)
