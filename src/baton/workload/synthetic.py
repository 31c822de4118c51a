"""Requests that no trace holds: drawn lengths, or a trace's lengths resampled."""

from collections.abc import Iterable

import numpy as np

from baton.workload.check import check_not_empty, check_num
from baton.workload.distribution import Lengths, spell_lengths
from baton.workload.request import Workload, WorkloadRequest


def synthesize(num: int, prompt: Lengths, output: Lengths, *, seed: int) -> Workload:
    """Prompt and output lengths drawn independently; all requests arrive at once."""
    check_num(num)
    rng = np.random.Generator(np.random.PCG64(seed))
    pairs = zip(prompt.draw(num, rng).tolist(), output.draw(num, rng).tolist(), strict=True)
    return Workload(
        name="synthetic",
        source=(
            f"synthetic (prompt {spell_lengths(prompt)}, output {spell_lengths(output)}, "
            f"seed {seed}, {num} requests)"
        ),
        requests=_requests(pairs),
    )


def sample_lengths(workload: Workload, num: int, seed: int, independent: bool) -> Workload:
    """Lengths drawn with replacement from a trace's; all requests arrive at once.

    `independent` draws the prompt and the output from different requests, as Splitwise's own
    evaluation does; otherwise a pair stays together. Shared prefixes and texts do not survive.
    """
    check_not_empty(workload)
    check_num(num)
    rng = np.random.Generator(np.random.PCG64(seed))
    chosen = rng.integers(0, len(workload.requests), size=num).tolist()
    answers = rng.integers(0, len(workload.requests), size=num).tolist() if independent else chosen
    pairs = (
        (workload.requests[asked].num_prompt_tokens, workload.requests[answered].num_output_tokens)
        for asked, answered in zip(chosen, answers, strict=True)
    )
    how = "prompt and output independently" if independent else "in pairs"
    return Workload(
        name=workload.name,
        source=workload.source,
        requests=_requests(pairs),
        notes=(
            *workload.notes,
            f"{num} lengths resampled {how} with seed {seed}, without arrivals, prefixes and texts",
        ),
    )


def _requests(pairs: Iterable[tuple[int, int]]) -> tuple[WorkloadRequest, ...]:
    return tuple(
        WorkloadRequest(arrival_us=0, num_prompt_tokens=prompt, num_output_tokens=output)
        for prompt, output in pairs
    )
