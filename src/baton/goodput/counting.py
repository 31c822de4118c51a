"""Which requests an attainment counts, and as what: the denominator, declared with the SLO."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from baton.errors import ConfigError
from baton.goodput.record import Outcome, RequestRecord


class CountAs(StrEnum):
    """What a request that has no latency of its own counts as."""

    MET = "met"
    MISSED = "missed"
    LEFT_OUT = "left out"


class Counting(msgspec.Struct, frozen=True, kw_only=True):
    """One rule for all figures, so that they share one denominator.

    `single_token` is about the TPOT of an output of one token, which has none; left out, such a
    request is left out of every figure. The first `num_warmup` requests and those scheduled in the
    first `warmup_us` of the run are left out too.
    """

    failed: CountAs = CountAs.MISSED
    cancelled: CountAs = CountAs.LEFT_OUT
    single_token: CountAs = CountAs.MET
    warmup_us: int = 0
    num_warmup: int = 0

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("failed", self.failed, (CountAs.MISSED, CountAs.LEFT_OUT)),
            ("cancelled", self.cancelled, (CountAs.LEFT_OUT, CountAs.MISSED)),
            ("single_token", self.single_token, (CountAs.MET, CountAs.LEFT_OUT)),
        ):
            if value not in allowed:
                raise ConfigError(
                    f"counting {name} requests as {value!r}: use "
                    + " or ".join(repr(one.value) for one in allowed)
                )
        for name, number in (("warmup_us", self.warmup_us), ("num_warmup", self.num_warmup)):
            if number < 0:
                raise ConfigError(f"{name} = {number}: must not be negative")

    def __str__(self) -> str:
        parts = [
            f"failed {self.failed}",
            f"cancelled {self.cancelled}",
            f"single-token TPOT {self.single_token}",
        ]
        if self.warmup_us:
            parts.append(f"first {self.warmup_us / 1e6:g} s left out")
        if self.num_warmup:
            parts.append(f"first {self.num_warmup} requests left out")
        return ", ".join(parts)


class Classes(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests of each kind there were; all but the warm-up by outcome."""

    num_records: int
    num_warmup: int
    num_completed: int
    num_failed: int
    num_cancelled: int
    num_single_token: int
    """Completed ones with one output token."""
    num_empty: int
    """Completed ones without a content token: they met no first token, so they missed."""

    def __str__(self) -> str:
        return (
            f"{self.num_records} records: {self.num_warmup} warm-up, {self.num_completed} completed"
            f" ({self.num_single_token} of one token, {self.num_empty} empty), "
            f"{self.num_failed} failed, {self.num_cancelled} cancelled"
        )


def is_single_token(record: RequestRecord) -> bool:
    """Whether it has a first token but no time per output token."""
    return bool(record.token_times_us) and record.tpot_us is None


def after_warmup(records: Sequence[RequestRecord], counting: Counting) -> list[RequestRecord]:
    """The rest, in order of their schedule."""
    ordered = sorted(records, key=lambda record: record.scheduled_us)[counting.num_warmup :]
    if not counting.warmup_us:
        return ordered
    return [record for record in ordered if record.scheduled_us >= counting.warmup_us]


def classify(records: Sequence[RequestRecord], counting: Counting) -> Classes:
    """The number of requests of each kind."""
    rest = after_warmup(records, counting)
    completed = [record for record in rest if record.outcome is Outcome.COMPLETED]
    return Classes(
        num_records=len(records),
        num_warmup=len(records) - len(rest),
        num_completed=len(completed),
        num_failed=sum(record.outcome is Outcome.FAILED for record in rest),
        num_cancelled=sum(record.outcome is Outcome.CANCELLED for record in rest),
        num_single_token=sum(map(is_single_token, completed)),
        num_empty=sum(not record.token_times_us for record in completed),
    )


def counted(records: Sequence[RequestRecord], counting: Counting) -> list[RequestRecord]:
    """The requests of the denominator."""
    return [record for record in after_warmup(records, counting) if _counts(record, counting)]


def _counts(record: RequestRecord, counting: Counting) -> bool:
    match record.outcome:
        case Outcome.FAILED:
            return counting.failed is not CountAs.LEFT_OUT
        case Outcome.CANCELLED:
            return counting.cancelled is not CountAs.LEFT_OUT
        case Outcome.COMPLETED:
            return not is_single_token(record) or counting.single_token is not CountAs.LEFT_OUT
