"""What host, scheduler and transport add to the engine: paired with a bare engine, in one run."""

import statistics

import msgspec

from baton.bench.bare_engine import start_bare
from baton.bench.steps import Case
from baton.bench.traffic import make_request, prompt_of, run_together
from baton.config import BatonConfig, load_config
from baton.errors import BatonError
from baton.runtime.cores import share_cores
from baton.runtime.deployment import Deployment, deploy

STEPS = 24


class OverheadRow(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over rounds; `ratio` is the median of the rounds' own ratios."""

    case: Case
    bare_ms: float
    served_ms: float
    ratio: float
    limit: float


async def measure_overhead(
    model: str, cases: list[Case], rounds: int, overrides: list[str]
) -> list[OverheadRow]:
    """Alternate bare and served steps of the same shapes on the same core, `rounds` times."""
    return await measure_steps(
        load_config(None, [f'model.name="{model}"', *overrides]), cases, rounds
    )


async def measure_steps(config: BatonConfig, cases: list[Case], rounds: int) -> list[OverheadRow]:
    """The same for a whole configuration."""
    bare: dict[Case, list[float]] = {case: [] for case in cases}
    served: dict[Case, list[float]] = {case: [] for case in cases}
    async with deploy(config, lambda *_: None) as deployment:
        await deployment.wait_ready(config.cluster.start_timeout_s)
        cores = share_cores(len(config.cluster.roles), config.worker.threads)[-1]
        bench = await start_bare(config, deployment.model_path, cores)
        try:
            for number in range(rounds):
                for case in cases:
                    bare[case].append(await bench.ask(case))
                    served[case].append(await served_ms(deployment, case, number))
        finally:
            await bench.close()
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


async def served_ms(deployment: Deployment, case: Case, number: int) -> float:
    """Milliseconds of one step of a case (its prefill, or a decode step of the whole batch)."""
    info = deployment.router.info
    assert info is not None
    if not case.batch:
        prompt = prompt_of(case.context, info.vocab_size, number)
        request = make_request(prompt, 1, salt=f"cold-{number}")
        return 1000 * (await run_together(deployment, [request]))[0].ttft_s
    prompts = [prompt_of(case.context, info.vocab_size, row) for row in range(case.batch)]
    # Known prompts need almost no prefill, so that all sequences decode together soon.
    await run_together(deployment, [make_request(prompt, 1, "known") for prompt in prompts])
    max_tokens = STEPS + 4 * case.batch
    requests = [make_request(prompt, max_tokens, "known") for prompt in prompts]
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
