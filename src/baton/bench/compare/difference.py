"""The comparison of two arms: a pure function from their records to what differs."""

from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from baton.bench.compare.record import ArmRecords, Record
from baton.core.ids import Mode


class Aspect(StrEnum):
    """What can differ."""

    RUN = "run"
    TOKENS = "tokens"
    END = "end"
    LOGITS = "logits"
    KV = "K/V"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a request is not proven equal."""

    aspect: Aspect
    text: str


_Fields = tuple[tuple[Aspect, str, Callable[[Record], object]], ...]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One request on both arms. `differences` fail the run, `notes` do not."""

    case: str
    label: str
    differences: tuple[Difference, ...]
    notes: tuple[Difference, ...] = ()
    candidate: Record | None = None

    @property
    def same(self) -> bool:
        """True when everything required agrees."""
        return not self.differences


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate arm against the reference."""

    arm: str
    exact: bool
    """Whether logits, logprobs and K/V digests had to agree too."""
    verdicts: tuple[Verdict, ...]
    handoffs: int = 0
    duration_s: float = 0.0

    @property
    def same(self) -> bool:
        """True when there was something to compare, and all of it agrees."""
        return bool(self.verdicts) and all(verdict.same for verdict in self.verdicts)


def compare(reference: ArmRecords, candidate: ArmRecords, cases: Sequence[str]) -> Comparison:
    """Compare every request of the named cases; one that an arm lacks is a difference."""
    exact = reference.deterministic and candidate.deterministic
    ours = {record.key: record for record in reference.records if record.case in cases}
    theirs = {record.key: record for record in candidate.records if record.case in cases}
    verdicts = []
    for key in dict.fromkeys([*ours, *theirs]):
        if key in ours and key in theirs:
            verdicts.append(_judge(ours[key], reference.mode, theirs[key], candidate.mode, exact))
        else:
            verdicts.append(_absent(*key, theirs.get(key), candidate if key in ours else reference))
    seen = {verdict.case for verdict in verdicts}
    verdicts += [_absent(case, "", None, candidate) for case in cases if case not in seen]
    return Comparison(
        arm=candidate.arm,
        exact=exact,
        verdicts=tuple(verdicts),
        handoffs=candidate.handoffs,
        duration_s=candidate.duration_s,
    )


def _absent(case: str, label: str, found: Record | None, lacking: ArmRecords) -> Verdict:
    difference = _run(f"no record on arm {lacking.arm}")
    return Verdict(case=case, label=label, differences=(difference,), candidate=found)


def _judge(
    reference: Record, reference_mode: Mode, candidate: Record, candidate_mode: Mode, exact: bool
) -> Verdict:
    required = [
        *_ran(reference, reference_mode),
        *_ran(candidate, candidate_mode),
        *_exercised(candidate),
        *_differences(reference, candidate, _REQUIRED),
    ]
    digests = [
        *_missing_digests(reference),
        *_missing_digests(candidate),
        *_differences(reference, candidate, _EXACT),
    ]
    return Verdict(
        case=candidate.case,
        label=candidate.label,
        differences=tuple(required + digests) if exact else tuple(required),
        notes=() if exact else tuple(digests),
        candidate=candidate,
    )


def _run(text: str) -> Difference:
    return Difference(aspect=Aspect.RUN, text=text)


def _ran(record: Record, mode: Mode) -> list[Difference]:
    """What makes a record no evidence, whatever it agrees with."""
    if record.error:
        return [_run(f"{mode}: {record.error}")]
    found = []
    if record.mode != mode:
        found.append(_run(f"ran {record.mode or 'in no mode'} instead of {mode}"))
    if record.num_failed_attempts:
        found.append(_run(f"{mode}: {record.num_failed_attempts} attempts failed"))
    if not record.tokens and not record.text:
        found.append(_run(f"{mode}: nothing was generated"))
    if record.unexercised:
        found.append(_run(f"{mode}: {record.unexercised}"))
    return found


def _exercised(record: Record) -> list[Difference]:
    """Whether the caches were as warm as the case is about."""
    pairs = (
        ("visible at the destination", record.expected_visible, record.visible_tokens),
        ("cached at the source", record.expected_cached, record.cached_tokens),
    )
    return [
        _run(f"{got} tokens {name} instead of {wanted}")
        for name, wanted, got in pairs
        if wanted not in (-1, got) and not record.error
    ]


def _missing_digests(record: Record) -> list[Difference]:
    found = []
    if record.digests and not record.error:
        if len(record.logits) != len(record.tokens) or not all(record.logits):
            found.append(Difference(aspect=Aspect.LOGITS, text="a token has no logits digest"))
        if record.whole and not record.kv_digest:
            found.append(Difference(aspect=Aspect.KV, text="the K/V digest is missing"))
    return found


def _differences(reference: Record, candidate: Record, fields: _Fields) -> list[Difference]:
    found = []
    for aspect, name, read in fields:
        mine, yours = read(reference), read(candidate)
        if mine != yours:
            text = f"{name} is {_short(yours)} instead of {_short(mine)}"
            if isinstance(mine, tuple) and isinstance(yours, tuple):
                text = _first_difference(name, mine, yours)
            found.append(Difference(aspect=aspect, text=text))
    return found


def _first_difference(name: str, ours: Sequence[object], theirs: Sequence[object]) -> str:
    for index, (mine, yours) in enumerate(zip(ours, theirs, strict=False)):
        if mine != yours:
            return f"{name} {index} is {_short(yours)} instead of {_short(mine)}"
    return f"{len(theirs)} of {name} instead of {len(ours)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


_REQUIRED: _Fields = (
    (Aspect.TOKENS, "token", lambda record: record.tokens),
    (Aspect.TOKENS, "text", lambda record: record.text),
    (Aspect.END, "finish reason", lambda record: record.finish_reason),
    (Aspect.END, "prompt_tokens", lambda record: record.prompt_tokens),
    (Aspect.END, "completion_tokens", lambda record: record.completion_tokens),
)
_EXACT: _Fields = (
    (Aspect.LOGITS, "logits digest", lambda record: record.logits),
    (Aspect.LOGITS, "logprobs", lambda record: record.logprobs),
    (Aspect.KV, "K/V digest", lambda record: record.kv_digest),
)
