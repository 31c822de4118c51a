"""Fields that would change the answer but are not built, and fields that may not be trusted."""

from collections.abc import Iterator, Mapping
from typing import Any

from baton.runtime.gateway.errors import invalid

_OMIT = "leave it out: Baton does not support it"
_NO_TOOLS = 'leave it out or set tool_choice to "none": Baton does not parse tool calls'
_NO_GUIDE = "leave it out: Baton does not constrain the output"

UNSUPPORTED: dict[str, tuple[tuple[Any, ...], str]] = {
    # field: (values that mean "off" beside null, remedy)
    "logit_bias": (({},), _OMIT),
    "presence_penalty": ((0,), "use 0: Baton has no penalties"),
    "frequency_penalty": ((0,), "use 0: Baton has no penalties"),
    "repetition_penalty": ((1,), "use 1: Baton has no penalties"),
    "length_penalty": ((1,), "use 1: Baton has no beam search"),
    "min_p": ((0,), "use 0: Baton samples with top_k and top_p"),
    "typical_p": ((1,), "use 1: Baton samples with top_k and top_p"),
    "use_beam_search": ((False,), "use false: Baton has no beam search"),
    "suffix": (("",), _OMIT),
    "echo": ((False,), "use false: Baton returns only generated text"),
    "prompt_logprobs": ((), _OMIT),
    "include_stop_str_in_output": ((False,), "use false: a stop string is never part of the text"),
    "truncate_prompt_tokens": ((), "leave it out and shorten the prompt"),
    "allowed_token_ids": (([],), _OMIT),
    "bad_words": (([],), _OMIT),
    "logits_processors": (([],), _OMIT),
    "guided_json": ((), _NO_GUIDE),
    "guided_regex": ((), _NO_GUIDE),
    "guided_choice": ((), _NO_GUIDE),
    "guided_grammar": ((), _NO_GUIDE),
    "structured_outputs": ((), _NO_GUIDE),
    "chat_template": ((), "leave it out: the model's own template is used"),
    "continue_final_message": ((False,), "use false, or send the text to /v1/completions"),
    "documents": (([],), _OMIT),
    "audio": ((), "leave it out: only text is served"),
    "web_search_options": ((), _OMIT),
    "function_call": (("none", "auto"), "leave it out: Baton does not parse tool calls"),
    "functions": (([],), "leave it out: Baton does not parse tool calls"),
}

STEERING_FIELDS = frozenset(
    {
        "kv_transfer_params",
        "disaggregated_params",
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "do_remote_prefill",
        "do_remote_decode",
        "data_parallel_rank",
    }
)
STEERING_HEADERS = frozenset(
    {b"x-prefiller-host-port", b"x-encoder-hosts-ports", b"x-data-parallel-host-port"}
)


def check_supported(body: Mapping[str, Any]) -> None:
    """Raise RequestRejected for the first field that asks for something not built."""
    for name, value in body.items():
        if value is None or name not in UNSUPPORTED:
            continue
        neutral, remedy = UNSUPPORTED[name]
        if not any(
            value == off and isinstance(value, bool) == isinstance(off, bool) for off in neutral
        ):
            raise invalid(name, value, remedy, "unsupported_parameter")
    if body.get("tools") and body.get("tool_choice") != "none":
        raise invalid("tools", body["tools"], _NO_TOOLS, "unsupported_parameter")
    if body.get("tool_choice") not in (None, "none", "auto"):
        raise invalid("tool_choice", body["tool_choice"], 'use "none"', "unsupported_parameter")
    _check_text_only(body)


def _check_text_only(body: Mapping[str, Any]) -> None:
    response_format = body.get("response_format")
    if response_format not in (None, {"type": "text"}):
        raise invalid(
            "response_format", response_format, 'use {"type": "text"}', "unsupported_parameter"
        )
    modalities = body.get("modalities")
    if modalities not in (None, [], ["text"]):
        raise invalid("modalities", modalities, 'use ["text"]', "unsupported_parameter")
    best_of = body.get("best_of")
    if best_of is not None and best_of != (body.get("n") or 1):
        raise invalid(
            "best_of", best_of, "leave it out: Baton returns all n answers", "unsupported_parameter"
        )


def steering_in(body: Mapping[str, Any], headers: list[tuple[bytes, bytes]]) -> Iterator[str]:
    """Names of client fields that try to steer a K/V transfer; they are dropped and counted."""
    for name in body:
        if name in STEERING_FIELDS:
            yield name
        elif name.startswith("remote_"):
            yield "remote_*"
    for header, _ in headers:
        if header in STEERING_HEADERS:
            yield header.decode()
