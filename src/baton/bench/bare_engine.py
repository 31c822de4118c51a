"""The engine alone, without nodes, threads or transport: the floor that serving is held to."""

import os
import statistics
import sys
import time
from pathlib import Path

import msgspec

from baton.bench.steps import Case, StepProcess
from baton.bench.traffic import prompt_of
from baton.config import BatonConfig
from baton.core.request import SamplingParams
from baton.core.work import Batch, WorkItem
from baton.engine.engine import Engine
from baton.runtime.cores import thread_environment

_STEPS = 16


class _Start(msgspec.Struct, frozen=True, kw_only=True):
    model_path: str
    cores: tuple[int, ...]
    config: BatonConfig


async def start_bare(config: BatonConfig, model_path: Path, cores: tuple[int, ...]) -> StepProcess:
    """Start a bare engine of `config.worker.threads` threads pinned to `cores`."""
    start = _Start(model_path=str(model_path), cores=cores, config=config)
    command = (sys.executable, "-m", "baton.bench.bare_engine")
    environment = thread_environment(config.worker.threads)
    return await StepProcess.start("bare engine", command, msgspec.json.encode(start), environment)


class BareEngine:
    """One engine over a private pool, driven step by step."""

    def __init__(self, path: Path, config: BatonConfig) -> None:
        worker = config.worker
        self._engine = Engine.load(
            path, config=config.model, block_size=worker.block_size, threads=worker.threads
        )
        self._block_size = config.worker.block_size
        self._chunk = config.worker.max_batch_tokens
        self._num_blocks = config.worker.kv_nbytes // self._engine.info.layout.bytes_per_block
        self._engine.bind_pool(None, self._num_blocks)

    def step_ms(self, batch: int, context: int) -> float:
        """A decode step of `batch` sequences at `context`, or with batch 0 a whole prefill."""
        if not batch:
            return self._prefill(context)
        # The rows before are whatever the pool holds: a step takes as long over any values.
        durations = []
        for step in range(_STEPS):
            items = tuple(self._item(row, context + step, 1, context) for row in range(batch))
            begin = time.perf_counter()
            self._execute(items)
            durations.append(1000 * (time.perf_counter() - begin))
        return statistics.median(durations)

    def _execute(self, items: tuple[WorkItem, ...]) -> None:
        result = self._engine.execute(Batch(batch_id=0, items=items))
        assert not result.error, result.error

    def _prefill(self, context: int) -> float:
        begin = time.perf_counter()
        for start in range(0, context, self._chunk):
            rows = min(self._chunk, context - start)
            self._execute((self._item(0, start, rows, context),))
        return 1000 * (time.perf_counter() - begin)

    def _item(self, row: int, start: int, rows: int, context: int) -> WorkItem:
        per_sequence = -(-(context + _STEPS) // self._block_size)
        tokens = prompt_of(context + _STEPS, self._engine.info.vocab_size, row)
        return WorkItem(
            request_id=str(row),
            generation=1,
            token_ids=tokens[start : start + rows],
            start=start,
            num_prompt_tokens=context,
            block_table=tuple(range(row * per_sequence, (row + 1) * per_sequence)),
            sample=start + rows >= context,
            sampling=SamplingParams(max_tokens=_STEPS, temperature=0.0),
        )


def _main() -> None:
    start = msgspec.json.decode(sys.stdin.buffer.readline(), type=_Start)
    os.sched_setaffinity(0, start.cores)
    engine = BareEngine(Path(start.model_path), start.config)
    print("ready", flush=True)
    for line in sys.stdin.buffer:
        case = msgspec.json.decode(line, type=Case)
        print("ms", engine.step_ms(case.batch, case.context), flush=True)


if __name__ == "__main__":
    _main()
