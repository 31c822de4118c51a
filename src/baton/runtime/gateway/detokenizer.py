"""Token ids to text, one token at a time, without ever showing half a character."""

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol

MAX_HELD_TOKENS = 8
"""Tokens without a whole character that are waited for: four bytes and some silent ones."""

MAX_SILENT_TOKENS = 4
"""Tokens without any text that are kept apart before they join the context."""

REPLACEMENT = "\ufffd"
_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer(Protocol):
    """State of one output text."""

    def push(self, token_id: int) -> str:
        """The text that became certain with this token; may be empty."""
        ...

    def flush(self) -> str:
        """The text of an unfinished character at the very end."""
        ...


class ByteDetokenizer:
    """For byte-level vocabularies: tokens are bytes, so a UTF-8 decoder is the whole state."""

    def __init__(self, token_bytes: Callable[[int], bytes], context: Sequence[int] = ()) -> None:
        self._token_bytes = token_bytes
        self._decoder = _Utf8Decoder("replace")
        for token_id in context:
            self._decoder.decode(token_bytes(token_id))

    def push(self, token_id: int) -> str:
        """The text that became certain with this token."""
        return self._decoder.decode(self._token_bytes(token_id))

    def flush(self) -> str:
        """The text of an unfinished character at the very end."""
        return self._decoder.decode(b"", final=True)


class WindowDetokenizer:
    """For any other vocabulary: decodes a short window twice and shows the difference.

    The window holds the tokens of the previous piece, because many decoders treat the start of a
    text specially (SentencePiece drops the space of the first word).
    """

    def __init__(self, decode: Callable[[list[int]], str], context: Sequence[int] = ()) -> None:
        self._decode = decode
        self._shown = list(context)
        self._shown_text = decode(self._shown) if self._shown else ""
        self._pending: list[int] = []

    def push(self, token_id: int) -> str:
        """The text that became certain with this token."""
        self._pending.append(token_id)
        text = self._decode(self._shown + self._pending)
        if text.endswith(REPLACEMENT) and len(self._pending) < MAX_HELD_TOKENS:
            return ""
        return self._advance(text)

    def flush(self) -> str:
        """The text of an unfinished character at the very end."""
        if not self._pending:
            return ""
        return self._advance(self._decode(self._shown + self._pending))

    def _advance(self, text: str) -> str:
        piece = text[len(self._shown_text) :]
        if piece:
            self._shown = self._pending
            self._shown_text = self._decode(self._shown)
            self._pending = []
        elif len(self._pending) >= MAX_SILENT_TOKENS:
            self._shown = self._shown + self._pending
            self._pending = []
        return piece
