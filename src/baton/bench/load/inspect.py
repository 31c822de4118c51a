"""Find out what a server takes before it is loaded: model, context, prompt form, extra fields."""

import asyncio
from typing import Any

import aiohttp
import msgspec

from baton.bench.load.body import as_prompt, extra_fields, low_ids, plain_body
from baton.bench.load.call import CallFailed, Reason, Received, call, make_session
from baton.bench.load.target import Abilities, Endpoint, Target
from baton.bench.load.words import WORDS, filler
from baton.errors import BatonError, ConfigError

TIMEOUT_S = 60.0
VOCAB_SIZES = (4096, 1024, 256)
"""Tried from above: enough different tokens that prompts do not share prefixes by chance."""
NUM_PROBE_TOKENS = 16
NUM_PROBE_WORDS = (8, 72)
_OPTIONAL = (
    ("ignore_eos", "skip_special_tokens", "seed", "stream_options"),
    ("ignore_eos", "seed", "stream_options"),
    ("seed", "stream_options"),
    ("stream_options",),
    (),
)
_BAD_BODY = ("HTTP 400", "HTTP 422")


async def inspect_target(target: Target) -> Abilities:
    """Ask the server a few short requests. Raises BatonError in one clear line."""
    async with make_session(timeout_s=TIMEOUT_S) as session:
        prober = _Prober(session, target)
        model, max_model_len = await prober.model()
        return await prober.abilities(model, max_model_len)


class _Prober:
    def __init__(self, session: aiohttp.ClientSession, target: Target) -> None:
        self._session = session
        self._target = target
        self._is_chat = target.endpoint is Endpoint.CHAT

    async def model(self) -> tuple[str, int | None]:
        """The model to ask for and its context, if the server tells."""
        target = self._target
        url = target.url("/v1/models")
        try:
            async with self._session.get(url, headers=target.all_headers) as response:
                status, body = response.status, await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unreachable(url, error) from error
        if status == 404 and target.model:
            return target.model, None
        if status in (401, 403):
            raise ConfigError(f"{url} answered HTTP {status}; give a key with OPENAI_API_KEY")
        try:
            listed = msgspec.json.decode(body)["data"] if status == 200 else None
            found = {str(one["id"]): one for one in listed or ()}
        except (msgspec.DecodeError, KeyError, TypeError):
            found = {}
        if status != 200 or not found:
            raise BatonError(
                f"{url} answered HTTP {status} without a list of models; is it an "
                "OpenAI-compatible server? Name the model with --model if it lists none"
            )
        model = target.model or next(iter(found))
        if model not in found:
            raise ConfigError(
                f"--model {model!r} is not served at {target.base_url}; use one of "
                f"{', '.join(map(repr, found))}"
            )
        return model, _context(found[model])

    async def abilities(self, model: str, max_model_len: int | None) -> Abilities:
        """Find the richest body that the server takes."""
        failure: CallFailed | None = None
        words = NUM_PROBE_WORDS[0]
        for names in _OPTIONAL:
            try:
                seen = await self._ask(model, self._text(words, 1), names)
            except CallFailed as error:
                if not str(error).startswith(_BAD_BODY):
                    raise self._useless(error) from error
                failure = error
                continue
            found = Abilities(
                model=model,
                max_model_len=max_model_len,
                extra_fields=frozenset(names),
                has_usage=seen.num_prompt_tokens is not None,
            )
            return await self._with_prompts(found, seen)
        assert failure is not None
        raise self._useless(failure)

    async def _with_prompts(self, found: Abilities, short: Received) -> Abilities:
        if not found.has_usage:
            return found
        if not self._is_chat:
            for vocab_size in VOCAB_SIZES:
                if await self._takes_tokens(found, vocab_size):
                    return msgspec.structs.replace(found, vocab_size=vocab_size)
        few, many = NUM_PROBE_WORDS
        try:
            long = await self._ask(found.model, self._text(many, 2), tuple(found.extra_fields))
        except CallFailed:
            return found
        fewer, more = short.num_prompt_tokens or 0, long.num_prompt_tokens or 0
        if more <= fewer:
            return found
        per_word = (more - fewer) / (many - few)
        return msgspec.structs.replace(
            found, tokens_per_word=per_word, overhead_tokens=fewer - per_word * few
        )

    async def _takes_tokens(self, found: Abilities, vocab_size: int) -> bool:
        first = len(low_ids(vocab_size))
        # The highest id is among them: a smaller vocabulary has to refuse it.
        tokens = [first + index for index in range(NUM_PROBE_TOKENS - 1)] + [vocab_size - 1]
        try:
            seen = await self._ask(found.model, {"prompt": tokens}, tuple(found.extra_fields))
        except CallFailed as error:
            if str(error).startswith((*_BAD_BODY, "HTTP 500")):
                return False
            raise self._useless(error) from error
        return abs((seen.num_prompt_tokens or 0) - len(tokens)) <= 1

    def _text(self, num_words: int, salt: int) -> dict[str, Any]:
        indices = tuple((index * 7 + salt) % len(WORDS) for index in range(num_words))
        return as_prompt(filler(indices), is_chat=self._is_chat)

    async def _ask(self, model: str, prompt: dict[str, Any], names: tuple[str, ...]) -> Received:
        extra = extra_fields(0, ignore_eos=True)
        body = {**plain_body(model, 2), **prompt, **{name: extra[name] for name in names}}
        received = Received()
        target = self._target
        url = target.url(target.endpoint.path)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                data = msgspec.json.encode(body)
                await call(self._session, url, target.all_headers, data, received)
        except TimeoutError:
            raise CallFailed(Reason.TIMEOUT, f"no answer within {TIMEOUT_S:g} s") from None
        except CallFailed as error:
            # Two tokens of an untrained model may have no text; the answer is still an answer.
            if error.reason != Reason.NO_CONTENT:
                raise
        return received

    def _useless(self, error: CallFailed) -> BatonError:
        url = self._target.url(self._target.endpoint.path)
        return BatonError(
            f"{url} does not answer a short request: {error}; check the server, the model and "
            "--endpoint"
        )


def _context(model: dict[str, Any]) -> int | None:
    """The context length: `max_model_len` of Baton and vLLM, `meta.n_ctx` of llama.cpp."""
    meta = model.get("meta")
    for value in (
        model.get("max_model_len"),
        meta.get("n_ctx") if isinstance(meta, dict) else None,
    ):
        if isinstance(value, int) and value > 0:
            return value
    return None


def _unreachable(url: str, error: Exception) -> BatonError:
    cause = getattr(error, "os_error", None) or error
    text = str(cause) or type(cause).__name__
    return BatonError(f"no server at {url}: {text}; start one (baton serve) or correct --url")
