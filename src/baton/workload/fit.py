"""Make a trace fit a model with a shorter context: cut its longest requests, or scale them all."""

import math

import msgspec

from baton.errors import ConfigError
from baton.workload.check import check_positive
from baton.workload.request import Workload, WorkloadRequest


def clip(
    workload: Workload,
    *,
    max_prompt: int | None = None,
    max_output: int | None = None,
    max_total: int | None = None,
) -> Workload:
    """Requests no longer than this; where both together are too long, the output gives way first.

    A prompt that is cut keeps its start, so its shared prefix; a text cannot be cut by tokens, so
    such a request loses it and a host makes a prompt of that length.
    """
    for name, bound, least in (
        ("max_prompt", max_prompt, 1),
        ("max_output", max_output, 1),
        ("max_total", max_total, 2),
    ):
        if bound is not None and bound < least:
            raise ConfigError(f"{name} = {bound}: must be at least {least} tokens, or left out")
    clipped = []
    for request in workload.requests:
        prompt = min(request.num_prompt_tokens, max_prompt or request.num_prompt_tokens)
        output = min(request.num_output_tokens, max_output or request.num_output_tokens)
        if max_total is not None:
            prompt = min(prompt, max_total - 1)
            output = min(output, max_total - prompt)
        clipped.append(_resized(request, prompt, output, workload.tokens_per_hash))
    bounds = [("prompt", max_prompt), ("output", max_output), ("total", max_total)]
    limits = ", ".join(f"{name} <= {bound}" for name, bound in bounds if bound is not None)
    return _changed(workload, clipped, f"clipped to {limits or 'nothing'}")


def scale(workload: Workload, factor: float, *, output_factor: float | None = None) -> Workload:
    """Lengths divided by a factor and rounded up; outputs by another one if it is given.

    The tokens of a hash id are divided too, so exactly the same prefixes stay shared: with hash ids
    the factor must divide their block.
    """
    check_positive(factor, "factor")
    answer_factor = factor if output_factor is None else output_factor
    check_positive(answer_factor, "output_factor")
    tokens_per_hash = workload.tokens_per_hash
    if tokens_per_hash and tokens_per_hash % factor:
        raise ConfigError(
            f"factor = {factor:g} does not divide the {tokens_per_hash} tokens of a hash id of "
            f"{workload.name!r}; use a divisor, so that shared prefixes stay shared"
        )
    block = int(tokens_per_hash / factor)
    scaled = [
        _resized(
            request,
            math.ceil(request.num_prompt_tokens / factor),
            math.ceil(request.num_output_tokens / answer_factor),
            block,
        )
        for request in workload.requests
    ]
    changed = _changed(workload, scaled, f"lengths divided by {factor:g} and {answer_factor:g}")
    return msgspec.structs.replace(changed, tokens_per_hash=block)


def _resized(
    request: WorkloadRequest, prompt: int, output: int, tokens_per_hash: int
) -> WorkloadRequest:
    same = prompt == request.num_prompt_tokens
    num_blocks = -(-prompt // tokens_per_hash) if tokens_per_hash else 0
    return msgspec.structs.replace(
        request,
        num_prompt_tokens=prompt,
        num_output_tokens=output,
        hash_ids=request.hash_ids[:num_blocks],
        prompt=request.prompt if same else "",
    )


def _changed(workload: Workload, requests: list[WorkloadRequest], what: str) -> Workload:
    pairs = list(zip(workload.requests, requests, strict=True))
    num_prompts = sum(a.num_prompt_tokens != b.num_prompt_tokens for a, b in pairs)
    num_outputs = sum(a.num_output_tokens != b.num_output_tokens for a, b in pairs)
    num_texts = sum(a.prompt != b.prompt for a, b in pairs)
    note = f"{what}: changed {num_prompts} prompts and {num_outputs} outputs"
    if num_texts:
        note += f", of which {num_texts} lost their text"
    return msgspec.structs.replace(
        workload, requests=tuple(requests), notes=(*workload.notes, note)
    )
