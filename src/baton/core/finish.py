"""When a request is complete: one rule for the worker that decodes and the router that resumes."""

from collections.abc import Sequence

from baton.core.layout import ModelInfo
from baton.core.request import Request, Token


def finish_reason(request: Request, outputs: Sequence[Token], model: ModelInfo) -> str:
    """ "stop" or "length" when the last output token ends the request, else ""."""
    if not outputs:
        return ""
    sampling, last = request.sampling, outputs[-1].token_id
    if len(outputs) >= sampling.min_tokens:
        if last in model.eos_token_ids and not sampling.ignore_eos:
            return "stop"
        if last in sampling.stop_token_ids:
            return "stop"
    num_tokens = request.num_prompt_tokens + len(outputs)
    if len(outputs) >= sampling.max_tokens or num_tokens >= model.max_model_len:
        return "length"
    return ""
