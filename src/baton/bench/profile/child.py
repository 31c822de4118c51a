"""An engine in a process of its own, pinned and bound to shared memory as a worker's is.

One JSON order a line in, one JSON answer a line out. It lives until its standard input closes.
"""

import os
import select
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from baton.bench.profile.orders import Described, Order, Start, Timed
from baton.bench.profile.shapes import Room, Shape
from baton.core.layout import DTYPE_NBYTES
from baton.core.request import SamplingParams
from baton.core.work import Batch, WorkItem
from baton.engine import kernels
from baton.engine.architecture import read_config
from baton.engine.engine import Engine
from baton.engine.step import GRID
from baton.errors import BatonError
from baton.policy.phase_cost import BlockShape
from baton.policy.service_profile import (
    BatchCoordinates,
    Hardware,
    Kernels,
    StepGrid,
    Subject,
)
from baton.runtime.dataplane import Arena
from baton.signals import end_with_parent

_GREEDY = SamplingParams(max_tokens=1, temperature=0.0)
_READ_NBYTES = 256 << 20
_READ_ROUNDS = 6


class ProfiledEngine:
    """A loaded engine that runs steps of any shape over a pool of a worker's size."""

    def __init__(self, start: Start) -> None:
        config = start.config
        path = Path(start.model_path)
        self._engine = Engine.load(
            path,
            config=config.model,
            block_size=config.worker.block_size,
            threads=config.worker.threads,
        )
        layout = self._engine.info.layout
        sequences = config.worker.max_num_seqs * layout.num_blocks(self._engine.info.max_model_len)
        self._num_blocks = max(1, min(config.worker.kv_nbytes // layout.bytes_per_block, sequences))
        self._arena = Arena.create("profile", self._num_blocks * layout.bytes_per_block, epoch=1)
        nbytes = self._num_blocks * layout.bytes_per_block
        self._engine.bind_pool(self._arena.buffer[:nbytes].data, self._num_blocks)
        self._engine.pool.tensor.normal_()
        self._config, self._settings = config, read_config(path)
        self._first_block = 0

    def time(self, shape: Shape) -> Timed:
        """One step: wall time, and this thread's CPU time to tell whether it was disturbed."""
        batch = self._batch(shape)
        cpu_s, wall_s = time.thread_time(), time.perf_counter()
        result = self._engine.execute(batch)
        wall_us = 1e6 * (time.perf_counter() - wall_s)
        cpu_us = 1e6 * (time.thread_time() - cpu_s)
        if result.error:
            raise BatonError(f"a step of {shape} failed: {result.error}")
        if self._config.worker.threads > 1:
            cpu_us = wall_us  # this thread waits for the others as it should
        return Timed(wall_us=wall_us, cpu_us=cpu_us)

    def _batch(self, shape: Shape) -> Batch:
        items = []
        for number, chunk in enumerate(shape.prefills):
            end = chunk.num_visible + chunk.num_rows
            items.append(self._item(f"p{number}", chunk.num_visible, end, end))
        for number, length in enumerate(shape.visible_lengths):
            items.append(self._item(f"d{number}", length - 1, length, max(1, length - 1)))
        return Batch(batch_id=0, items=tuple(items))

    def _item(self, name: str, start: int, end: int, num_prompt_tokens: int) -> WorkItem:
        """Rows `start .. end-1` in blocks that walk over the pool; what they hold takes no time."""
        count = self._engine.info.layout.num_blocks(end)
        table = tuple((self._first_block + j) % self._num_blocks for j in range(count))
        self._first_block = (self._first_block + count) % self._num_blocks
        vocabulary = self._engine.info.vocab_size
        return WorkItem(
            request_id=name,
            generation=0,
            token_ids=tuple((3 + 7 * position) % vocabulary for position in range(start, end)),
            start=start,
            num_prompt_tokens=num_prompt_tokens,
            block_table=table,
            sample=True,
            sampling=_GREEDY,
        )

    def describe(self) -> Described:
        """What is being measured, and how much of it fits."""
        engine, worker = self._engine, self._config.worker
        info, forward = engine.info, engine._built.forward
        linears = forward.linears
        subject = Subject(
            identity=info.identity,
            dtype=info.dtype,
            shape=_block_shape(self._settings, info.layout, info.dtype),
            weight_nbytes=sum(
                item.out_features * item.in_features * DTYPE_NBYTES[info.dtype] for item in linears
            ),
            hardware=Hardware(
                cpu_model=cpu_model(),
                num_cores=os.cpu_count() or 1,
                num_threads=worker.threads,
                read_bytes_per_us=read_bytes_per_us(),
            ),
            kernels=Kernels(
                torch_version=version("torch"),
                numba_version=version("numba"),
                deterministic=engine.deterministic,
                report=engine.deterministic_report,
            ),
            batch=BatchCoordinates(
                batch_policy=worker.batch_policy,
                max_batch_tokens=worker.max_batch_tokens,
                max_num_seqs=worker.max_num_seqs,
            ),
        )
        room = Room(
            max_len=min(info.max_model_len, self._num_blocks * info.layout.block_size),
            max_rows=worker.max_batch_tokens,
            max_seqs=worker.max_num_seqs,
            num_blocks=self._num_blocks,
            block_size=info.layout.block_size,
        )
        grid = StepGrid(
            min_rows=forward.pad(1), query_rows=GRID if forward.attention.canonical else 0
        )
        return Described(subject=subject, grid=grid, room=room)

    def close(self) -> None:
        """Give the shared memory back."""
        self._engine.unbind_pool()
        self._arena.close()


def _block_shape(settings: Any, layout: Any, dtype: str) -> BlockShape:
    width = int(settings.hidden_size)
    return BlockShape(
        layout=layout,
        model_dim=width,
        ffn_dim=int(getattr(settings, "intermediate_size", None) or 4 * width),
        num_query_heads=int(settings.num_attention_heads),
        nbytes_per_weight=DTYPE_NBYTES[dtype],
    )


def cpu_model() -> str:
    """The processor as the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def read_bytes_per_us() -> float:
    """Bytes per microsecond of one thread that sums memory; the best of a few rounds."""
    values = np.ones(_READ_NBYTES // 4, np.float32)
    best_s = float("inf")
    for _ in range(_READ_ROUNDS):
        begin = time.perf_counter()
        kernels.total(values, values.size)
        best_s = min(best_s, time.perf_counter() - begin)
    return _READ_NBYTES / best_s / 1e6


def _spin(engine: ProfiledEngine, shape: Shape) -> Timed:
    """Run one shape again and again until the next order is here."""
    last = engine.time(shape)
    while not select.select([sys.stdin], [], [], 0)[0]:
        last = engine.time(shape)
    return last


def _say(answer: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def main() -> int:
    """Load what the first line names, describe it, then take orders."""
    start = msgspec.json.decode(_read_line(), type=Start)
    end_with_parent(start.parent_pid)
    if start.cores:
        os.sched_setaffinity(0, start.cores)
    try:
        engine = ProfiledEngine(start)
        _say(engine.describe())
    except BatonError as error:
        _say(Described(error=str(error)))
        return 2
    try:
        while line := _read_line():
            order = msgspec.json.decode(line, type=Order)
            _say(_spin(engine, order.shape) if order.endless else engine.time(order.shape))
    finally:
        engine.close()
    return 0


def _read_line() -> bytes:
    """Unbuffered, so that `select` on standard input tells the truth."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            return b""
        line += byte
    return line


if __name__ == "__main__":
    sys.exit(main())
