"""A scripted backend, a small byte-level tokenizer, and a real server on its own thread."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import tokenizers
import uvloop
from tokenizers import decoders, models, pre_tokenizers, trainers

from baton.config import GatewayConfig
from baton.core.delivery import Delivery, Failed, Finished, Started, Tokens
from baton.core.effects import Trace
from baton.core.ids import Mode
from baton.core.layout import KVLayout, ModelIdentity, ModelInfo
from baton.core.request import Request, Token, TopLogprob, Usage
from baton.errors import RequestRejected
from baton.runtime.gateway import Tokenizer, create_app, serve_app

MODEL = "tiny/model"
MAX_MODEL_LEN = 128
HANG = "hang"
STARTED = Started(mode=Mode.DISAGGREGATED, prefill_worker="p0", decode_worker="d0")
CONFIG = GatewayConfig(
    max_body_nbytes=65_536, body_timeout_s=0.4, stream_stall_s=0.6, max_n=4, max_prompts=4
)
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' "
    "+ message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

Step = Delivery | Exception | float | str


def byte_level() -> tokenizers.Tokenizer:
    """A byte-level BPE with a few merges and three control tokens."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["hello world, the quick brown fox jumps over the dog"] * 4, trainer)
    return made


def tiny_tokenizer() -> Tokenizer:
    return Tokenizer(byte_level(), chat_template=TEMPLATE)


def model_info(tokenizer: Tokenizer) -> ModelInfo:
    return ModelInfo(
        name=MODEL,
        max_model_len=MAX_MODEL_LEN,
        vocab_size=tokenizer.vocab_size,
        eos_token_ids=(0, 2),
        identity=ModelIdentity(model=MODEL, checkpoint_hash="c", tokenizer_hash="t"),
        layout=KVLayout(num_layers=1, num_kv_heads=1, head_dim=8, block_size=16),
    )


class Pool(msgspec.Struct):
    """What stands for a view of the cache."""

    generation: int


class ScriptedBackend:
    """Plays a list of steps per request: deliveries, pauses, exceptions, or hanging for ever.

    `held` has every request that was accepted and neither ended nor cancelled: it must be empty
    whenever the gateway is done.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.info: ModelInfo | None = model_info(tokenizer)
        self.reset()

    def reset(self) -> None:
        self.not_ready = ""
        self.is_yielding = True
        """Whether the event loop has a turn after each token."""
        self.observed: list[Trace] = []
        self.generation = 0
        self.drained: list[tuple[str, float]] = []
        self.submitted: list[Request] = []
        self.cancelled: list[tuple[str, str]] = []
        self.held: set[str] = set()
        self.script: Callable[[Request], Iterable[Step]] = lambda request: self.says(
            request, "Hello!"
        )
        self._cancel_events: dict[str, asyncio.Event] = {}

    def tokens(self, text: str) -> list[Tokens]:
        ids = self.tokenizer.encode(text)
        return [
            Tokens(
                tokens=(
                    Token(
                        index=index,
                        token_id=token_id,
                        logprob=-0.5,
                        top_logprobs=(TopLogprob(token_id, -0.5), TopLogprob(5, float("-inf"))),
                    ),
                )
            )
            for index, token_id in enumerate(ids)
        ]

    def says(self, request: Request, text: str, reason: str = "stop") -> list[Step]:
        tokens = self.tokens(text)
        usage = Usage(
            prompt_tokens=request.num_prompt_tokens,
            completion_tokens=len(tokens),
            cached_tokens=3,
        )
        return [STARTED, *tokens, Finished(finish_reason=reason, usage=usage)]

    async def submit(self, request: Request) -> AsyncIterator[Delivery]:
        self.submitted.append(request)
        self.held.add(request.request_id)
        cancelled = self._cancel_events[request.request_id] = asyncio.Event()
        num_tokens = 0
        for step in self.script(request):
            if isinstance(step, Exception):
                if isinstance(step, RequestRejected):
                    self.held.discard(request.request_id)
                raise step
            if isinstance(step, float | str):
                try:
                    await asyncio.wait_for(
                        cancelled.wait(), None if isinstance(step, str) else step
                    )
                except TimeoutError:
                    continue
            if cancelled.is_set():
                usage = Usage(prompt_tokens=1, completion_tokens=num_tokens, cached_tokens=7)
                yield Finished(finish_reason="cancelled", usage=usage)
                return
            assert not isinstance(step, float | str)
            if isinstance(step, Tokens):
                num_tokens += len(step.tokens)
            if isinstance(step, Finished | Failed):
                self.held.discard(request.request_id)
            yield step
            if isinstance(step, Tokens) and self.is_yielding:
                await asyncio.sleep(0)

    def cancel(self, request_id: str, reason: str) -> None:
        self.held.discard(request_id)
        self.cancelled.append((request_id, reason))
        if request_id in self._cancel_events:
            self._cancel_events[request_id].set()

    def observe(self, trace: Trace) -> None:
        self.observed.append(trace)

    def ready(self) -> str:
        return self.not_ready

    def status(self) -> dict[str, Any]:
        return {"workers": 2}

    def deployment(self) -> None:
        return None

    def cache(self) -> msgspec.Struct:
        return Pool(generation=self.generation)

    def drain_worker(self, worker_id: str, timeout_s: float) -> None:
        self.drained.append((worker_id, timeout_s))

    def clear_cache(self) -> int:
        self.generation += 1
        return self.generation

    def traces(self) -> bytes:
        return b""

    def dashboard(self) -> msgspec.Struct:
        return Pool(generation=self.generation)

    def dashboard_request(self, request_id: str) -> msgspec.Struct | None:
        return None

    def metrics(self) -> bytes:
        return b"# TYPE backend_up gauge\nbackend_up 1\n"


class Served:
    """The address of a running server, and what stands behind it."""

    def __init__(self, backend: ScriptedBackend, host: str, port: int) -> None:
        self.backend = backend
        self.host = host
        self.port = port
        self.url = f"http://{host}:{port}"

    def connect(self, receive_nbytes: int = 0) -> socket.socket:
        raw = socket.socket()
        if receive_nbytes:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_nbytes)
        raw.settimeout(10)
        raw.connect((self.host, self.port))
        return raw

    def post_raw(self, path: str, body: dict[str, Any], receive_nbytes: int = 0) -> socket.socket:
        raw = self.connect(receive_nbytes)
        raw.sendall(http_post(path, json.dumps(body).encode()))
        return raw


def http_post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def read_to_end(raw: socket.socket) -> bytes:
    data = b""
    while chunk := raw.recv(65536):
        data += chunk
    return data


def wait_until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.005)


@contextmanager
def running_server(
    config: GatewayConfig = CONFIG, run_loop: Callable[[Any], None] = uvloop.run
) -> Iterator[Served]:
    """A real uvicorn server on a thread of its own, on a free port."""
    backend = ScriptedBackend(tiny_tokenizer())
    app = create_app(backend, backend.tokenizer, config, model_name=MODEL, version="1.2.3")
    ready = threading.Event()
    address: list[Any] = []

    async def main() -> None:
        def on_started(host: str, port: int) -> None:
            address.extend((host, port, asyncio.get_running_loop(), asyncio.current_task()))
            ready.set()

        await serve_app(app, "127.0.0.1", 0, on_started=on_started, shutdown_s=1)

    def run() -> None:
        with suppress(asyncio.CancelledError):
            run_loop(main())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10), "the server did not start"
    host, port, loop, task = address
    try:
        yield Served(backend, host, port)
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(10)
        assert not thread.is_alive(), "the server did not stop"
