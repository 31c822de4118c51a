"""Entry of a worker process: reads its specification from stdin, lives until stdin closes."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from baton.engine.engine import Engine
from baton.errors import BatonError, EngineLost
from baton.runtime.dataplane import DataPlane
from baton.runtime.descriptors import raise_descriptor_limit
from baton.runtime.faults import limit_arena, open_plane
from baton.runtime.pipeline import PipelineEngine
from baton.runtime.spec import WorkerReport, WorkerSpec
from baton.runtime.worker_host import WorkerHost, num_pool_blocks

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Start the worker that the first line of stdin describes."""
    raise_descriptor_limit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    line = sys.stdin.buffer.readline()
    if not line:  # the parent gave up before it said what to do
        return 0
    spec = msgspec.json.decode(line, type=WorkerSpec)
    if spec.parent_pid:
        _end_with(spec.parent_pid)
    if spec.cores:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, spec.cores)
    try:
        return asyncio.run(_serve(spec))
    except EngineLost as error:  # no configuration is to blame: the next life may go better
        _report(WorkerReport(error=str(error)))
        return 1
    except BatonError as error:
        _report(WorkerReport(error=str(error)))
        return 2
    except Exception as error:
        # A bug, or memory that ran out: the traceback goes to standard error, the parent gets why.
        _report(WorkerReport(error=repr(error)))
        raise


async def _serve(spec: WorkerSpec) -> int:
    with ThreadPoolExecutor(1) as opener:
        # NIXL takes a second to open its agent, and a model about as long to load. Not beside the
        # start of other processes: they would inherit what the library wants in the environment.
        opening = opener.submit(_open_plane, spec) if _loads_alone(spec) else None
        engine = _load(spec)
        plane = opening.result() if opening else _open_plane(spec)
    num_blocks = num_pool_blocks(engine, spec)
    _bound_context(engine, num_blocks)
    limit_arena(spec.faults, spec.config)
    host = WorkerHost(spec, engine, num_blocks, plane)
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), _on_stdin, host)
    loop.add_signal_handler(signal.SIGTERM, host.stop)
    _report(WorkerReport(stage="ready", fraction=1.0, report=engine.deterministic_report))
    refused = await host.run()
    if refused:
        _report(WorkerReport(error=refused))
        return 3
    return 0


def _end_with(parent_pid: int) -> None:
    """Be killed when the thread of that process ends which started this one."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it was quicker, and nothing will be sent
        os.kill(os.getpid(), signal.SIGKILL)


def _loads_alone(spec: WorkerSpec) -> bool:
    """Whether no stage processes start meanwhile."""
    return spec.config.pp_size_of(spec.role) == 1


def _open_plane(spec: WorkerSpec) -> DataPlane:
    return open_plane(spec.config, spec.faults, f"{spec.worker_id} {spec.epoch}")


def _load(spec: WorkerSpec) -> Engine | PipelineEngine:
    def progress(stage: str, fraction: float) -> None:
        _report(WorkerReport(stage=stage, fraction=fraction))

    if not _loads_alone(spec):
        return PipelineEngine.load(spec.config, spec.role, spec.model_path, progress)
    return Engine.load(
        Path(spec.model_path),
        config=spec.config.model,
        block_size=spec.config.block_size_of(spec.role),
        threads=spec.config.worker.threads,
        progress=progress,
    )


def _bound_context(engine: Engine | PipelineEngine, num_blocks: int) -> None:
    """A context longer than the pool could never be served."""
    capacity = num_blocks * engine.info.layout.block_size - 1
    if engine.info.max_model_len > capacity:
        engine.info = msgspec.structs.replace(engine.info, max_model_len=capacity)


def _on_stdin(host: WorkerHost) -> None:
    """The parent writes nothing more: readable means that it closed the pipe or died."""
    if not os.read(sys.stdin.fileno(), 4096):
        host.stop()


def _report(report: WorkerReport) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
