"""Whether two answers to one request are equal, as a list of what differs."""

import msgspec

from baton.bench.vllm.asking import Answer

LOGPROB_TOLERANCE = 1e-3
"""A decode server computes the last prompt row alone: sums of floats are added in another order."""


class VllmVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One request on both sides."""

    case: str
    label: str
    differences: tuple[str, ...]
    logprob_gap: float
    """Largest difference of log probabilities; 0 where there were none."""
    mode: str
    reason: str
    num_tokens: int
    cached_tokens: int

    @property
    def same(self) -> bool:
        """Everything required agrees."""
        return not self.differences


def judge(
    case: str,
    label: str,
    reference: Answer,
    candidate: Answer,
    *,
    mode: str,
    reused: tuple[int, int] | None = None,
) -> VllmVerdict:
    """Tokens, texts, ends and usage must be equal, and the answer come by `mode` ("" for any)."""
    found = [f"{name}: {one.error}" for name, one in _sides(reference, candidate) if one.error]
    gap = 0.0
    if not found:
        found += _outputs(reference, candidate)
        gap = _gap(reference, candidate)
        if gap > LOGPROB_TOLERANCE:
            found.append(f"log probabilities are {gap:.2e} apart")
        for name in ("prompt_tokens", "completion_tokens"):
            ours, theirs = getattr(reference, name), getattr(candidate, name)
            if ours != theirs:
                found.append(f"usage.{name} is {theirs}, alone {ours}")
        if mode and candidate.mode != mode:
            found.append(f"it ran {candidate.mode or 'unknown'} ({candidate.reason}), not {mode}")
        cached = candidate.cached_tokens
        if reused is not None and not reused[0] <= cached <= reused[1]:
            found.append(f"cached_tokens is {cached}, and {reused[0]} to {reused[1]} were there")
    return VllmVerdict(
        case=case,
        label=label,
        differences=tuple(found),
        logprob_gap=gap,
        mode=candidate.mode,
        reason=candidate.reason,
        num_tokens=sum(len(output.token_ids) for output in candidate.outputs.values()),
        cached_tokens=candidate.cached_tokens,
    )


def _sides(reference: Answer, candidate: Answer) -> tuple[tuple[str, Answer], ...]:
    return ("alone", reference), ("pair", candidate)


def _outputs(reference: Answer, candidate: Answer) -> list[str]:
    if set(reference.outputs) != set(candidate.outputs) or not reference.outputs:
        return [f"outputs {sorted(candidate.outputs)}, alone {sorted(reference.outputs)}"]
    found = []
    for index, ours in reference.outputs.items():
        theirs = candidate.outputs[index]
        if not ours.token_ids:
            found.append(f"output {index} has no tokens to compare")
        for name in ("token_ids", "text", "finish_reason"):
            if getattr(ours, name) != getattr(theirs, name):
                found.append(
                    f"output {index}: {name} {getattr(theirs, name)!r}, alone "
                    f"{getattr(ours, name)!r}"
                )
        if len(ours.logprobs) != len(theirs.logprobs):
            found.append(f"output {index}: {len(theirs.logprobs)} log probabilities")
    return found


def _gap(reference: Answer, candidate: Answer) -> float:
    gaps = [
        abs(one - other)
        for index, ours in reference.outputs.items()
        if index in candidate.outputs
        for one, other in zip(ours.logprobs, candidate.outputs[index].logprobs, strict=False)
        if one is not None and other is not None
    ]
    return max(gaps, default=0.0)
