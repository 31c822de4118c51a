"""Records of one rate with everything that is derived from them."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from baton.bench.load.client import INTERRUPTED, reason_of
from baton.bench.load.schedule import Lateness, lateness
from baton.errors import BatonError
from baton.goodput.attainment import Attainment, judge
from baton.goodput.counting import Counting, after_warmup
from baton.goodput.interval import NothingToJudge
from baton.goodput.percentiles import latency_summary, throughput_summary
from baton.goodput.record import Outcome, RequestRecord
from baton.goodput.slo import SLOTargets


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What one run, or the repetitions of one rate, gave; warm-up requests are not in it."""

    records: tuple[RequestRecord, ...]
    num_warmup: int
    num_interrupted: int
    duration_us: int
    lateness: Lateness | None
    attainment: Attainment | None
    counting: Counting

    @property
    def throughput(self) -> dict[str, float | int]:
        """Counts and rates under vLLM's names."""
        return throughput_summary(self.records, self.duration_us)

    @property
    def latency(self) -> dict[str, float | None]:
        """Latency figures under vLLM's names."""
        return latency_summary(self.records)

    @property
    def failures(self) -> dict[str, int]:
        """Failed requests by reason, the most frequent first."""
        found = Counter(reason_of(one) for one in self.records if one.outcome is Outcome.FAILED)
        return dict(found.most_common())

    @property
    def modes(self) -> dict[str, int]:
        """Completed requests by how the server says that it ran them."""
        found = Counter(one.mode for one in self.records if one.outcome is Outcome.COMPLETED)
        return {mode: num for mode, num in found.most_common() if mode}

    @property
    def mean_lengths(self) -> dict[str, float]:
        """Mean tokens of prompts and outputs as the server counted them."""
        done = [one for one in self.records if one.outcome is Outcome.COMPLETED]
        if not done:
            return {}
        return {
            "mean_input_len": sum(one.num_prompt_tokens for one in done) / len(done),
            "mean_output_len": sum(one.num_output_tokens for one in done) / len(done),
        }


def measure(
    runs: Sequence[list[RequestRecord]], targets: SLOTargets | None, counting: Counting
) -> Measured:
    """Judge the repetitions of one rate together; the warm-up of each is left out.

    Raises BatonError when nothing is left to measure.
    """
    kept: list[RequestRecord] = []
    sent: list[RequestRecord] = []
    duration_us = num_interrupted = 0
    for records in runs:
        ended = [one for one in records if one.error != INTERRUPTED]
        num_interrupted += len(records) - len(ended)
        rest = after_warmup(ended, counting)
        kept += rest
        sent += ended
        if rest:
            duration_us += max(one.end_us for one in rest) - min(one.scheduled_us for one in rest)
    if not kept:
        raise BatonError(
            f"nothing was measured: of {sum(map(len, runs))} requests none ended after the warm-up"
        )
    without_warmup = msgspec.structs.replace(counting, num_warmup=0, warmup_us=0)
    attainment = None
    if targets is not None:
        try:
            attainment = judge(kept, targets, counting=without_warmup, duration_us=duration_us)
        except NothingToJudge:
            attainment = None
    return Measured(
        records=tuple(kept),
        num_warmup=len(sent) - len(kept),
        num_interrupted=num_interrupted,
        duration_us=max(duration_us, 1),
        lateness=lateness(kept),
        attainment=attainment,
        counting=counting,
    )
