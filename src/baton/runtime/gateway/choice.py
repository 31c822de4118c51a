"""One output of a request: tokens in, text pieces out, and the reason it ended."""

from collections.abc import Sequence

import msgspec

from baton.core.delivery import Finished, Started
from baton.core.request import Request, Token, Usage
from baton.runtime.gateway.stops import StopMatcher
from baton.runtime.gateway.tokenizer import Tokenizer


class Piece(msgspec.Struct, gc=False):
    """What one delivery added to one choice."""

    index: int
    text: str = ""
    tokens: tuple[Token, ...] = ()
    text_offset: int = 0
    finish_reason: str = ""
    started: Started | None = None


class Choice:
    """Turns the deliveries of one backend request into pieces of text."""

    def __init__(
        self,
        index: int,
        prompt_index: int,
        request: Request,
        tokenizer: Tokenizer,
        *,
        stops: tuple[str, ...],
        eos_token_ids: Sequence[int],
        skip_special_tokens: bool,
    ) -> None:
        self.index = index
        self.prompt_index = prompt_index
        self.request = request
        self.ended = False
        """The backend holds nothing for this choice any more."""
        self.stopped = False
        """A stop string was found; whatever else arrives is dropped."""
        self.num_tokens = 0
        self.usage: Usage | None = None
        self._num_chars = 0
        self._detokenizer = tokenizer.detokenizer(
            request.prompt_token_ids, skip_special_tokens=skip_special_tokens
        )
        self._matcher = StopMatcher(stops) if stops else None
        sampling = request.sampling
        self._min_tokens = sampling.min_tokens
        self._silent = frozenset(
            (*sampling.stop_token_ids, *(() if sampling.ignore_eos else eos_token_ids))
        )

    def push(self, tokens: tuple[Token, ...]) -> Piece:
        """Add new tokens. Sets `stopped` when a stop string is complete; later tokens are lost."""
        assert not self.stopped, "tokens after the stop string"
        text = ""
        offset = self._num_chars
        matcher = self._matcher
        for position, token in enumerate(tokens):
            self.num_tokens += 1
            if token.token_id in self._silent and self.num_tokens >= self._min_tokens:
                continue  # the token that ends the answer is not part of its text
            new = self._detokenizer.push(token.token_id)
            if matcher is not None and new:
                # A stop string counts only where the answer may already end.
                if self.num_tokens >= self._min_tokens:
                    new = matcher.push(new)
                if matcher.matched is not None:
                    self.stopped = True
                    text += new
                    tokens = tokens[: position + 1]
                    break
            text += new
        self._num_chars += len(text)
        return Piece(self.index, text, tokens, offset)

    def finish(self, finished: Finished) -> Piece:
        """The last piece: whatever was held back, and the finish reason."""
        self.ended = True
        self.usage = finished.usage
        if self.stopped:
            return Piece(self.index, finish_reason="stop", text_offset=self._num_chars)
        self.num_tokens = finished.usage.completion_tokens
        text = self._detokenizer.flush()
        reason = finished.finish_reason
        if self._matcher is not None:
            text = self._matcher.push(text)
            if self._matcher.matched is None:
                text += self._matcher.flush()
            else:
                self.stopped, reason = True, "stop"
        return Piece(self.index, text, finish_reason=reason, text_offset=self._num_chars)


class UsageTotal(msgspec.Struct, kw_only=True):
    """The `usage` object of a whole HTTP request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def to_json(self) -> bytes:
        """Encoded in OpenAI's form."""
        return (
            b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,'
            b'"prompt_tokens_details":{"cached_tokens":%d}}'
            % (
                self.prompt_tokens,
                self.completion_tokens,
                self.prompt_tokens + self.completion_tokens,
                self.cached_tokens,
            )
        )


def total_usage(choices: Sequence[Choice]) -> UsageTotal:
    """Usage over all choices: each prompt counts once, with the least reuse among its choices.

    The choice with the least reuse is the one that paid for the prompt; the others only found
    what it had just computed.
    """
    prompt_tokens: dict[int, int] = {}
    cached_tokens: dict[int, int] = {}
    for choice in choices:
        prompt = choice.prompt_index
        prompt_tokens[prompt] = choice.request.num_prompt_tokens
        cached = choice.usage.cached_tokens if choice.usage else 0
        cached_tokens[prompt] = min(cached_tokens.get(prompt, cached), cached)
    return UsageTotal(
        prompt_tokens=sum(prompt_tokens.values()),
        completion_tokens=sum(choice.num_tokens for choice in choices),
        cached_tokens=sum(cached_tokens.values()),
    )
