"""A core that is busy with prompts, in a process of its own: what decodes share a machine with.

`python -m baton.bench.race.neighbour MODEL_PATH CORE` prints a line when it is busy, and ends with
its standard input.
"""

import asyncio
import os
import select
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from baton.errors import BatonError

_ROWS = 512
_START_S = 120.0


def main() -> None:
    """Compute prompts until nobody listens."""
    path, core = Path(sys.argv[1]), int(sys.argv[2])
    os.sched_setaffinity(0, {core})
    from baton.config import ModelConfig
    from baton.core.request import SamplingParams
    from baton.core.work import Batch, WorkItem
    from baton.engine.engine import Engine

    size = 16
    engine = Engine.load(path, config=ModelConfig(self_test=False), block_size=size)
    engine.bind_pool(None, _ROWS // size)
    item = WorkItem(
        request_id="neighbour",
        generation=0,
        token_ids=tuple(3 + i % 200 for i in range(_ROWS)),
        start=0,
        num_prompt_tokens=_ROWS,
        block_table=tuple(range(_ROWS // size)),
        sample=True,
        sampling=SamplingParams(max_tokens=1, temperature=0.0),
    )
    engine.execute(Batch(batch_id=0, items=(item,)))
    print("busy", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        engine.execute(Batch(batch_id=0, items=(item,)))


@asynccontextmanager
async def busy_core(model_path: Path, core: int) -> AsyncIterator[None]:
    """Inside, one core computes prompts. Raises BatonError when it does not start."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "baton.bench.race.neighbour",
        str(model_path),
        str(core),
        stdin=PIPE,
        stdout=PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        async with asyncio.timeout(_START_S):
            line = await process.stdout.readline()
        if not line:
            raise BatonError(f"the busy neighbour ended with exit {await process.wait()}")
        yield
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


if __name__ == "__main__":
    main()
