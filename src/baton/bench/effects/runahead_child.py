"""One engine process of a two-process prefill: its rows of a prompt, over a shared K/V pool.

The engine calls `on_layer` when it has written its own rows of a layer and before it attends in
that layer: the first process tells there that its rows are final, the second waits there for them.
"""

import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from baton.bench.traffic import prompt_of
from baton.config import ModelConfig
from baton.core.request import SamplingParams
from baton.core.work import Batch, WorkItem
from baton.engine.engine import Engine
from baton.errors import BatonError
from baton.runtime.clock import now_us
from baton.runtime.dataplane import Arena, ArenaDescriptor


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """First line on standard input."""

    model_path: str
    model: ModelConfig
    block_size: int
    core: int
    relay: int
    """An eventfd of both processes that counts final layers (EFD_SEMAPHORE)."""


class Bind(msgspec.Struct, frozen=True, kw_only=True):
    """The shared pool, once its size is known."""

    arena: ArenaDescriptor
    num_blocks: int


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to Start: what a pool for this model takes."""

    bytes_per_block: int
    block_size: int
    max_model_len: int
    deterministic: bool


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Compute rows `start .. end-1` of a prompt of `length`."""

    start: int
    end: int
    length: int
    seed: int
    tells: bool = False
    """Count every layer whose rows are final."""
    waits: bool = False
    """Wait for one count in every layer."""
    timeout_s: float = 60.0


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The end of Rows. With the last row: its token, and digests of logits and of all K/V."""

    ended_us: int = 0
    waited_us: int = 0
    cpu_share: float = 0.0
    """Of the time that it computed, what it had the core."""
    token_id: int = -1
    logits_digest: str = ""
    kv_digest: str = ""
    error: str = ""


class Relay:
    """Final layers of one process, counted for the other."""

    def __init__(self, handle: int, timeout_s: float) -> None:
        self.waited_us = 0
        self._handle = handle
        self._deadline_s = time.monotonic() + timeout_s

    def tell(self, layer: int) -> None:
        """This process's rows of `layer` are final."""
        del layer  # layers become final in order, so a count says enough
        os.eventfd_write(self._handle, 1)

    def wait(self, layer: int) -> None:
        """Return when the other's rows of `layer` are final; raises BatonError at the deadline."""
        began_us = now_us()
        left_s = max(0.0, self._deadline_s - time.monotonic())
        readable, _, _ = select.select([self._handle], [], [], left_s)
        if not readable:
            raise BatonError(f"layer {layer} of the other process's rows never became final")
        os.eventfd_read(self._handle)
        self.waited_us += now_us() - began_us


def _run(engine: Engine, rows: Rows, handle: int) -> Done:
    size = engine.info.layout.block_size
    table = tuple(range(-(-rows.length // size)))
    relay = Relay(handle, rows.timeout_s)
    on_layer: Callable[[int], None] | None = None
    if rows.tells:
        on_layer = relay.tell
    elif rows.waits:
        on_layer = relay.wait
    last = rows.end == rows.length
    item = WorkItem(
        request_id="runahead",
        generation=1,
        token_ids=prompt_of(rows.length, engine.info.vocab_size, rows.seed)[rows.start : rows.end],
        start=rows.start,
        num_prompt_tokens=rows.length,
        block_table=table,
        sample=last,
        sampling=SamplingParams(max_tokens=1, temperature=0.0),
        verify=True,
    )
    began_us, began_cpu_s = now_us(), time.process_time()
    try:
        result = engine.execute(Batch(batch_id=1, items=(item,)), on_layer)
    except BatonError as error:
        return Done(error=str(error))
    ended_us, cpu_us = now_us(), 1e6 * (time.process_time() - began_cpu_s)
    done = Done(
        ended_us=ended_us,
        waited_us=relay.waited_us,
        cpu_share=cpu_us / max(1, ended_us - began_us - relay.waited_us),
        error=result.error,
    )
    if result.error or not last:
        return done
    (drawn,) = result.sampled
    return msgspec.structs.replace(
        done,
        token_id=drawn.token_id,
        logits_digest=drawn.logits_digest,
        kv_digest=engine.kv_digest(table, rows.length),
    )


def _say(value: Ready | Done) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def _main() -> None:
    lines = sys.stdin.buffer
    start = msgspec.json.decode(lines.readline(), type=Start)
    os.sched_setaffinity(0, {start.core})
    engine = Engine.load(Path(start.model_path), config=start.model, block_size=start.block_size)
    layout = engine.info.layout
    _say(
        Ready(
            bytes_per_block=layout.bytes_per_block,
            block_size=layout.block_size,
            max_model_len=engine.info.max_model_len,
            deterministic=engine.deterministic,
        )
    )
    line = lines.readline()
    if not line:
        return
    bind = msgspec.json.decode(line, type=Bind)
    arena = Arena.attach(bind.arena)
    nbytes = bind.num_blocks * layout.bytes_per_block
    engine.bind_pool(arena.buffer[:nbytes].data, bind.num_blocks)
    for line in lines:
        _say(_run(engine, msgspec.json.decode(line, type=Rows), start.relay))
    engine.unbind_pool()
    arena.close()


if __name__ == "__main__":
    _main()
