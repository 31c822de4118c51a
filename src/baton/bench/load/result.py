"""The result as JSON: the names of `vllm bench serve` first, then what it has no name for."""

import math
from datetime import UTC, datetime
from typing import Any

import msgspec

from baton import __version__
from baton.bench.load.making import name_of
from baton.bench.load.measured import Measured
from baton.bench.load.session import ProbeRun
from baton.bench.load.settings import BenchSettings
from baton.bench.load.target import Abilities
from baton.goodput.attainment import Attainment
from baton.goodput.record import Outcome
from baton.goodput.search import Goodput
from baton.workload.request import Workload

US_PER_S = 1_000_000


def result_of(
    settings: BenchSettings,
    abilities: Abilities,
    workload: Workload,
    measured: Measured,
    *,
    probes: list[ProbeRun] | None = None,
    goodput: Goodput | None = None,
    interrupted: bool = False,
) -> dict[str, Any]:
    """Everything that was measured and how; no NaN and no infinity anywhere."""
    rate = next((one.rate for one in probes or () if one.measured is measured), None)
    rate = settings.arrivals.rate if rate is None else rate
    attainment = measured.attainment
    result: dict[str, Any] = {
        "date": datetime.now(UTC).strftime("%Y%m%d-%H%M%S"),
        "backend": "openai" if settings.target.endpoint == "completions" else "openai-chat",
        "model_id": abilities.model,
        "num_prompts": len(workload.requests),
        "request_rate": "inf" if math.isinf(rate) else rate,
        "burstiness": settings.arrivals.burstiness,
        "max_concurrency": settings.options.max_concurrency,
        **measured.throughput,
        "request_goodput": attainment.goodput.value if attainment else None,
        **measured.latency,
        "interrupted": interrupted,
        "num_warmup": measured.num_warmup,
        "num_interrupted": measured.num_interrupted,
        "failures": measured.failures,
        "modes": measured.modes,
        **measured.mean_lengths,
        "client_lateness": msgspec.to_builtins(measured.lateness),
        "attainment": attainment_of(attainment),
        "workload": name_of(workload),
        "server": msgspec.to_builtins(abilities) | {"prompts": abilities.prompt_kind},
        "url": settings.target.base_url,
        "seed": settings.options.seed,
        "ignore_eos": settings.options.ignore_eos,
        "baton_version": __version__,
    }
    if probes is not None:
        result["search"] = _search(probes, goodput)
    if settings.save_detailed:
        result |= _details(measured)
    return result


def attainment_of(attainment: Attainment | None) -> dict[str, Any] | None:
    """Fractions with their intervals, and the denominator in words."""
    if attainment is None:
        return None
    found: dict[str, Any] = msgspec.to_builtins(attainment)
    return found | {
        "described": attainment.describe(),
        "joint_passes": attainment.joint_passes,
        "phases_pass": attainment.phases_pass,
    }


def _search(probes: list[ProbeRun], goodput: Goodput | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "probes": [
            {
                "rate": run.rate,
                "attainment": attainment_of(run.measured.attainment),
                "client_lateness": msgspec.to_builtins(run.measured.lateness),
                "failures": run.measured.failures,
                **run.measured.throughput,
                **run.measured.latency,
            }
            for run in probes
        ]
    }
    if goodput is not None:
        found |= {
            "goodput_joint": msgspec.to_builtins(goodput.joint),
            "goodput_phases": msgspec.to_builtins(goodput.phases),
            "resolution": goodput.resolution,
        }
    return found


def _details(measured: Measured) -> dict[str, Any]:
    """One entry for each request, seconds as vLLM has them; None where nothing was measured."""
    records = measured.records
    return {
        "input_lens": [one.num_prompt_tokens for one in records],
        "output_lens": [one.num_output_tokens for one in records],
        "ttfts": [None if one.ttft_us is None else one.ttft_us / US_PER_S for one in records],
        "itls": [[gap / US_PER_S for gap in one.gaps_us] for one in records],
        "latencies": [
            (one.end_us - one.scheduled_us) / US_PER_S if one.outcome is Outcome.COMPLETED else None
            for one in records
        ],
        "start_times": [one.scheduled_us / US_PER_S for one in records],
        "queue_times": [(one.sent_us - one.scheduled_us) / US_PER_S for one in records],
        "errors": [one.error for one in records],
        "records": msgspec.to_builtins(list(records)),
    }
