"""What one chunk of a stream says, decoded no further than it is used."""

from typing import Any

import msgspec


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class Usage(msgspec.Struct, gc=False):
    """Token counts of a whole request."""

    prompt_tokens: int = 0
    completion_tokens: int | None = None


class Chunk(msgspec.Struct):
    """One event of a stream, of either endpoint."""

    choices: list[_Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    object: str | None = None
    message: Any = None
    code: Any = None

    @property
    def has_content(self) -> bool:
        """Whether it carries output; a role alone and an empty text do not."""
        for choice in self.choices or ():
            if choice.text:
                return True
            delta = choice.delta
            if delta and (delta.content or delta.reasoning_content or delta.reasoning):
                return True
        return False

    @property
    def is_last(self) -> bool:
        """Whether the server says that the output ends here."""
        return any(choice.finish_reason for choice in self.choices or ())

    @property
    def failure(self) -> str:
        """The error that this event reports, as code and message; "" for none."""
        if self.error:
            return describe_error(self.error)
        if self.object == "error":
            return describe_error({"code": self.code, "message": self.message})
        return ""


decode_chunk = msgspec.json.Decoder(Chunk).decode


def describe_error(error: Any) -> str:
    """An error object of any server in one short line."""
    if not isinstance(error, dict):
        return str(error)[:200]
    code = error.get("code") or error.get("type") or ""
    return f"{code} {error.get('message') or ''}".strip()[:200]


def describe_body(body: bytes) -> str:
    """The error in the body of a refusal, whatever form it has."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body.decode(errors="replace").strip()[:200]
    if isinstance(found, dict) and isinstance(found.get("error"), dict | str):
        return describe_error(found["error"])
    return describe_error(found)
