"""A run in words: one line for each thing that happened, heartbeats and ticks left out."""

from collections.abc import Iterator

import msgspec

from baton.core import effects, events, messages
from baton.core.effects import Trace
from baton.core.events import Event
from baton.core.messages import Message, fence_of

_SILENT = (messages.Load, messages.Renew)
_TELLING = ("reason", "chunk_ids", "cached_tokens", "finish_reason", "next_index", "epoch")


class Narrator:
    """Collects the lines of a run; give `take` to `run_plan` as its log."""

    def __init__(self, max_lines: int = 100_000) -> None:
        self._lines: list[str] = []
        self._max_lines = max_lines
        self.num_dropped = 0

    def take(self, at_us: int, place: str, what: Event | Trace) -> None:
        """Add the line of one event, if it has one."""
        text = _line(what)
        if not text:
            return
        if len(self._lines) >= self._max_lines:
            self.num_dropped += 1
            return
        self._lines.append(f"{at_us / 1000:>12.3f} ms  {place:<10} {text}")

    def lines(self) -> Iterator[str]:
        """Every line, in order."""
        yield from self._lines
        if self.num_dropped:
            yield f"... and {self.num_dropped} more"


def _line(what: Event | Trace) -> str:
    match what:
        case events.Tick():
            return ""
        case events.Received(envelope=envelope):
            message = envelope.message
            if isinstance(message, _SILENT):
                return ""
            return f"<- {envelope.sender_id}.{envelope.sender_epoch} {describe(message)}"
        case effects.Trace(name=name, request_id=request_id, generation=generation, data=data):
            details = " ".join(f"{key}={value}" for key, value in data.items())
            return f"   {name} {request_id}.{generation} {details}".rstrip()
        case events.BatchDone(result=result):
            drawn = " ".join(f"{s.request_id}.{s.generation}={s.token_id}" for s in result.sampled)
            return f"batch {result.batch_id} done {result.error or drawn}".rstrip()
        case events.Submitted(request=request):
            return f"submitted {request.request_id} of {request.num_prompt_tokens} tokens"
    fields = [f"{name}={getattr(what, name)}" for name in what.__struct_fields__]
    return f"{type(what).__name__} {' '.join(fields)}"


def describe(message: Message) -> str:
    """A message by its kind, its transfer and what tells it apart."""
    fence = fence_of(message)
    words = [type(message).__name__]
    if fence is not None:
        words.append(fence.transfer_id)
    if isinstance(message, messages.TokenRows):
        words += [f"{r.request_id}.{r.generation}[{r.token.index}]" for r in message.rows]
    if isinstance(message, messages.Hello | messages.PeerUp):
        words.append(f"{message.info.worker_id}.{message.info.epoch}")
    fields = msgspec.structs.asdict(message)
    words += [f"{name}={fields[name]}" for name in _TELLING if fields.get(name) not in (None, "")]
    return " ".join(words)
