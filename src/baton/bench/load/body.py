"""Request bodies: prompts of a wanted length, greedy, streamed, with the output length fixed."""

from collections.abc import Iterator
from typing import Any

import msgspec

from baton.bench.load.options import LoadOptions
from baton.bench.load.target import Abilities, Endpoint, Target
from baton.bench.load.words import WORDS, filler
from baton.workload.prompts import prompt_tokens
from baton.workload.request import Workload, WorkloadRequest

MIN_PLAIN_VOCAB = 1024
NUM_LOW_IDS = 260
"""Special tokens and bare bytes stand at the low end of most vocabularies."""


class BodyMaker:
    """Bodies of a workload's requests, equal whenever the arguments are."""

    def __init__(
        self, target: Target, abilities: Abilities, workload: Workload, options: LoadOptions
    ) -> None:
        self._is_chat = target.endpoint is Endpoint.CHAT
        self._abilities = abilities
        self._workload = workload
        self._options = options
        self._encode = msgspec.json.Encoder().encode

    def bodies(self) -> Iterator[bytes]:
        """One body for each request, made when it is asked for."""
        for index in range(len(self._workload.requests)):
            yield self.body(index)

    def body(self, index: int) -> bytes:
        """The body of one request."""
        request = self._workload.requests[index]
        body = plain_body(self._abilities.model, request.num_output_tokens)
        body.update(self._prompt(request, index))
        extra = extra_fields(self._options.seed + index, ignore_eos=self._options.ignore_eos)
        body.update((k, v) for k, v in extra.items() if k in self._abilities.extra_fields)
        body.update(self._options.extra_body)
        return self._encode(body)

    def _prompt(self, request: WorkloadRequest, index: int) -> dict[str, Any]:
        if request.prompt:
            return as_prompt(request.prompt, is_chat=self._is_chat)
        if self._abilities.vocab_size and not self._is_chat:
            return {"prompt": self._tokens(request, index)}
        return as_prompt(self._filler(request, index), is_chat=self._is_chat)

    def _tokens(self, request: WorkloadRequest, index: int) -> tuple[int, ...]:
        vocab_size = self._abilities.vocab_size
        return prompt_tokens(
            request,
            vocab_size=vocab_size,
            tokens_per_hash=self._workload.tokens_per_hash,
            seed=self._options.seed,
            exclude=low_ids(vocab_size),
            index=index,
        )

    def _filler(self, request: WorkloadRequest, index: int) -> str:
        abilities = self._abilities
        num_words = words_for(request.num_prompt_tokens, abilities)
        tokens_per_hash = self._workload.tokens_per_hash
        if tokens_per_hash:
            tokens_per_hash = max(1, round(tokens_per_hash / abilities.tokens_per_word))
        indices = prompt_tokens(
            msgspec.structs.replace(request, num_prompt_tokens=num_words),
            vocab_size=len(WORDS),
            tokens_per_hash=tokens_per_hash,
            seed=self._options.seed,
            index=index,
        )
        return filler(indices)


def plain_body(model: str, num_output_tokens: int) -> dict[str, Any]:
    """What every server of the API understands."""
    return {
        "model": model,
        "max_tokens": max(1, num_output_tokens),
        "temperature": 0.0,
        "stream": True,
    }


def extra_fields(seed: int, *, ignore_eos: bool) -> dict[str, Any]:
    """Fields that some servers refuse; each is sent only where it was not."""
    extra: dict[str, Any] = {"stream_options": {"include_usage": True}, "seed": seed}
    if ignore_eos:
        extra["ignore_eos"] = True
        # With it an end of text inside the output has no text, and its chunk would be missing.
        extra["skip_special_tokens"] = False
    return extra


def as_prompt(text: str, *, is_chat: bool) -> dict[str, Any]:
    """A text as the endpoint wants it."""
    return {"messages": [{"role": "user", "content": text}]} if is_chat else {"prompt": text}


def low_ids(vocab_size: int) -> frozenset[int]:
    """Token ids that prompts leave out."""
    return frozenset(range(NUM_LOW_IDS if vocab_size >= MIN_PLAIN_VOCAB else 0))


def words_for(num_tokens: int, abilities: Abilities) -> int:
    """The number of filler words that make about so many tokens."""
    return max(1, round((num_tokens - abilities.overhead_tokens) / abilities.tokens_per_word))
