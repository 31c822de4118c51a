"""What host, scheduler and transport add to the engine: paired with a bare engine, in one run."""

import os
import statistics
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import msgspec

from baton.bench.traffic import make_request, prompt_of, run_together
from baton.config import BatonConfig, load_config
from baton.errors import BatonError
from baton.runtime.deployment import Deployment, deploy
from baton.runtime.supervisor import share_cores

STEPS = 24


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A decode step of `batch` sequences at `context`, or (batch 0) a prefill of `context`."""

    batch: int
    context: int


class OverheadRow(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over rounds; `ratio` is the median of the rounds' own ratios."""

    case: Case
    bare_ms: float
    served_ms: float
    ratio: float
    limit: float


class _BareRequest(msgspec.Struct, frozen=True, kw_only=True):
    model_path: str
    core: int
    cases: list[Case]
    config: BatonConfig


async def measure_overhead(
    model: str, cases: list[Case], rounds: int, overrides: list[str]
) -> list[OverheadRow]:
    """Alternate bare and served steps of the same shapes on the same core, `rounds` times."""
    config = load_config(None, [f'model.name="{model}"', *overrides])
    bare: dict[Case, list[float]] = {case: [] for case in cases}
    served: dict[Case, list[float]] = {case: [] for case in cases}
    async with deploy(config, lambda *_: None) as deployment:
        await deployment.wait_ready(config.cluster.start_timeout_s)
        bench = await _start_bare(config, deployment.model_path, cases)
        try:
            for number in range(rounds):
                for case in cases:
                    bare[case].append(await _ask_bare(bench, case))
                    served[case].append(await _served_ms(deployment, case, number))
        finally:
            assert bench.stdin is not None
            bench.stdin.close()
            await bench.wait()
    return [_row(case, bare[case], served[case]) for case in cases]


def _row(case: Case, bare: list[float], served: list[float]) -> OverheadRow:
    ratios = [a / b for a, b in zip(served, bare, strict=True)]
    return OverheadRow(
        case=case,
        bare_ms=statistics.median(bare),
        served_ms=statistics.median(served),
        ratio=statistics.median(ratios),
        limit=1.10 if case.batch else 1.05,
    )


async def _served_ms(deployment: Deployment, case: Case, number: int) -> float:
    info = deployment.router.info
    assert info is not None
    salt = f"{case.batch}-{case.context}-{number}"
    if not case.batch:
        prompt = prompt_of(case.context, info.vocab_size, number)
        request = make_request(prompt, 1, salt=salt)
        return 1000 * (await run_together(deployment, [request]))[0].ttft_s
    requests = [
        make_request(prompt_of(case.context, info.vocab_size, i), STEPS + 2 * case.batch, salt)
        for i in range(case.batch)
    ]
    timed = await run_together(deployment, requests)
    # Steps count once every sequence decodes, and while none has ended.
    begin = max(t.token_s[1] for t in timed)
    end = min(t.token_s[-1] for t in timed)
    gaps = [
        b - a
        for t in timed
        for a, b in zip(t.token_s, t.token_s[1:], strict=False)
        if a >= begin and b <= end
    ]
    if not gaps:
        raise BatonError(f"no full decode step was seen for batch {case.batch}")
    return 1000 * statistics.median(gaps)


# -- the bare engine, in a process of its own --------------------------------------------------


async def _start_bare(config: BatonConfig, model_path: Path, cases: list[Case]) -> Process:
    core = share_cores(2)[-1][0]
    process = await create_subprocess_exec(
        sys.executable, "-m", "baton.bench.overhead", stdin=PIPE, stdout=PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )  # fmt: skip
    request = _BareRequest(model_path=str(model_path), core=core, cases=cases, config=config)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(msgspec.json.encode(request) + b"\n")
    await process.stdout.readline()
    return process


async def _ask_bare(process: Process, case: Case) -> float:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(msgspec.json.encode(case) + b"\n")
    line = await process.stdout.readline()
    if not line:
        raise BatonError("the bare engine process ended")
    return float(line)


def _bare_main() -> int:
    from baton.bench.bare_engine import BareEngine

    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=_BareRequest)
    os.sched_setaffinity(0, {request.core})
    engine = BareEngine(Path(request.model_path), request.config)
    print("ready", flush=True)
    for line in sys.stdin.buffer:
        case = msgspec.json.decode(line, type=Case)
        print(engine.step_ms(case.batch, case.context), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(_bare_main())
