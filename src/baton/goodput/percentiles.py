"""Latency figures of a run under the names that `vllm bench serve` gives them."""

from collections.abc import Sequence

import numpy as np

from baton.errors import ConfigError
from baton.goodput.record import Outcome, RequestRecord

PERCENTILES = (50.0, 90.0, 99.0)
US_PER_MS = 1000
US_PER_S = 1_000_000


def latencies_us(records: Sequence[RequestRecord]) -> dict[str, list[float]]:
    """The observations behind each figure, of completed requests.

    A TPOT is (last token - first token) / (tokens - 1), so an output of one token has none; ITL are
    the gaps between chunks of all requests together; E2EL runs to the end of the stream.
    """
    done = [record for record in records if record.outcome is Outcome.COMPLETED]
    return {
        "ttft": [float(one.ttft_us) for one in done if one.ttft_us is not None],
        "tpot": [one.tpot_us for one in done if one.tpot_us is not None],
        "itl": [float(gap) for one in done for gap in one.gaps_us],
        "e2el": [float(one.end_us - one.scheduled_us) for one in done],
    }


def latency_summary(
    records: Sequence[RequestRecord], percentiles: Sequence[float] = PERCENTILES
) -> dict[str, float | None]:
    """mean_ttft_ms, median_ttft_ms, std_ttft_ms, p50_ttft_ms and so on.

    A figure without an observation is None: a 0 there would read as a very fast server.
    """
    for q in percentiles:
        if not 0 <= q <= 100:
            raise ConfigError(f"percentile {q}: from 0 to 100")
    summary: dict[str, float | None] = {}
    for name, values_us in latencies_us(records).items():
        values = np.asarray(values_us, dtype=np.float64) / US_PER_MS
        has_any = len(values) > 0
        summary[f"mean_{name}_ms"] = float(values.mean()) if has_any else None
        summary[f"median_{name}_ms"] = float(np.median(values)) if has_any else None
        summary[f"std_{name}_ms"] = float(values.std()) if has_any else None
        for q in percentiles:
            found = float(np.percentile(values, q)) if has_any else None
            summary[f"p{q:g}_{name}_ms"] = found
    return summary


def throughput_summary(
    records: Sequence[RequestRecord], duration_us: int
) -> dict[str, float | int]:
    """Counts, and rates over a duration; tokens are those of completed requests."""
    if duration_us < 1:
        raise ConfigError(f"duration_us = {duration_us}: a rate needs a duration above 0")
    done = [record for record in records if record.outcome is Outcome.COMPLETED]
    num_prompt = sum(record.num_prompt_tokens for record in done)
    num_output = sum(record.num_output_tokens for record in done)
    duration_s = duration_us / US_PER_S
    return {
        "duration": duration_s,
        "completed": len(done),
        "failed": sum(record.outcome is Outcome.FAILED for record in records),
        "cancelled": sum(record.outcome is Outcome.CANCELLED for record in records),
        "total_input_tokens": num_prompt,
        "total_output_tokens": num_output,
        "request_throughput": len(done) / duration_s,
        "output_throughput": num_output / duration_s,
        "total_token_throughput": (num_prompt + num_output) / duration_s,
    }
