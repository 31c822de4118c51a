"""Server-sent events of the two endpoints; everything constant is encoded once per request."""

import msgspec

from baton.errors import RequestRejected
from baton.runtime.gateway.choice import Piece
from baton.runtime.gateway.errors import error_json

DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.Encoder().encode

# Legal inside JSON strings, but many clients split lines with str.splitlines().
_LINE_BREAKS = (("\u0085", "\\u0085"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))


def encode_text(text: str) -> bytes:
    """`text` as a JSON string that no client takes for several lines."""
    encoded = _encode(text)
    if not text.isascii():
        for char, escape in _LINE_BREAKS:
            if char in text:
                encoded = encoded.replace(char.encode(), escape.encode())
    return encoded


def error_event(error: RequestRejected) -> bytes:
    """The event that ends a stream which failed after its head was sent."""
    return b"data: " + error_json(error) + b"\n\n"


class ChunkEncoder:
    """Encodes the chunks of one streamed response."""

    def __init__(
        self, *, chat: bool, public_id: str, created: int, model: str, include_usage: bool
    ) -> None:
        kind = "chat.completion.chunk" if chat else "text_completion"
        self._chat = chat
        self._envelope = b'data: {"id":%b,"object":"%b","created":%d,"model":%b,"choices":[' % (
            _encode(public_id),
            kind.encode(),
            created,
            _encode(model),
        )
        self._tail = b'}],"usage":null}\n\n' if include_usage else b"}]}\n\n"
        self._heads: dict[int, bytes] = {}
        self._plain_end = (b"}" if chat else b"") + b',"logprobs":null,"finish_reason":null'
        self._plain_end += self._tail

    def role(self, index: int) -> bytes:
        """The first chunk of a chat choice: the role and no content; b"" for completions."""
        if not self._chat:
            return b""
        return (
            self._envelope
            + b'{"index":%d,"delta":{"role":"assistant","content":""}' % index
            + b',"logprobs":null,"finish_reason":null'
            + self._tail
        )

    def text(self, index: int, text: str) -> bytes:
        """The common chunk: some text and nothing else."""
        head = self._heads.get(index)
        if head is None:
            field = b'"delta":{"content":' if self._chat else b'"text":'
            head = self._heads[index] = self._envelope + b'{"index":%d,' % index + field
        return head + encode_text(text) + self._plain_end

    def chunk(self, piece: Piece, logprobs: bytes = b"null", usage: bytes = b"") -> bytes:
        """Any chunk: text, log probabilities, finish reason and running usage."""
        if not self._chat:
            content = b'"text":' + encode_text(piece.text)
        elif piece.text or not piece.finish_reason:
            content = b'"delta":{"content":%b}' % encode_text(piece.text)
        else:
            content = b'"delta":{}'
        finish = b'"%b"' % piece.finish_reason.encode() if piece.finish_reason else b"null"
        return b'%b{"index":%d,%b,"logprobs":%b,"finish_reason":%b%b' % (
            self._envelope,
            piece.index,
            content,
            logprobs,
            finish,
            b'}],"usage":%b}\n\n' % usage if usage else self._tail,
        )

    def usage(self, usage: bytes) -> bytes:
        """The last chunk before [DONE]: no choices, only usage."""
        return self._envelope + b'],"usage":' + usage + b"}\n\n"
