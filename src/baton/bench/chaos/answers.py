"""What a client read, and whether it is what the calm deployment answered."""

from typing import Any

import msgspec

DONE = "[DONE]"


class Choice(msgspec.Struct, kw_only=True):
    """One choice, as far as it was read."""

    text: str = ""
    finish_reason: str = ""


class Answer(msgspec.Struct, kw_only=True):
    """One answer, as far as it was read."""

    choices: dict[int, Choice] = {}
    error: str = ""
    """Code of the error object that ended it."""
    is_done: bool = False
    """The whole body came, or the stream's last event."""

    @property
    def is_finished(self) -> bool:
        """Whether every choice that was seen has its end."""
        return bool(self.choices) and all(c.finish_reason for c in self.choices.values())

    def add(self, item: dict[str, Any]) -> None:
        """Take a response body or the object of one event."""
        if "error" in item:
            self.error = error_code(item)
            return
        for part in item["choices"]:
            choice = self.choices.setdefault(part["index"], Choice())
            message = part.get("message") or part.get("delta") or {}
            choice.text += part.get("text") or message.get("content") or ""
            choice.finish_reason = part.get("finish_reason") or choice.finish_reason

    def equals(self, reference: "Answer") -> bool:
        """The same choices with the same texts and ends."""
        return self.choices == reference.choices

    def begins(self, reference: "Answer") -> bool:
        """Whether everything read so far is the beginning of the reference."""
        for index, choice in self.choices.items():
            whole = reference.choices.get(index)
            if whole is None or not whole.text.startswith(choice.text):
                return False
            if choice.finish_reason and choice != whole:
                return False
        return True


def error_code(item: dict[str, Any]) -> str:
    """The code of an error object; "" when it has none, which no deliberate error is without."""
    error = item.get("error")
    return str(error.get("code") or "") if isinstance(error, dict) else ""


class EventReader:
    """Cuts a stream of bytes into the data of server-sent events."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[str]:
        """The events that are complete now."""
        *events, self._buffer = (self._buffer + data).split(b"\n\n")
        return [event[6:].decode() for event in events if event.startswith(b"data: ")]
