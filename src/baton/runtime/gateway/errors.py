"""The one OpenAI error object that every refusal and failure becomes."""

import math
from typing import Any

import msgspec

from baton.core.delivery import Failed
from baton.errors import RequestRejected

MAX_RETRY_AFTER_S = 3600
MAX_SHOWN = 60

_KIND_OF_STATUS = {
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


def show(value: object) -> str:
    """`value` as JSON, shortened, for use inside an error message."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


def invalid(param: str, value: object, remedy: str, code: str | None = None) -> RequestRejected:
    """A 400 that names the field, its value and the remedy."""
    return RequestRejected(f"{param} is {show(value)}; {remedy}", param=param, code=code)


def kind_of_status(status: int) -> str:
    """The OpenAI error type that fits an HTTP status."""
    if status in _KIND_OF_STATUS:
        return _KIND_OF_STATUS[status]
    return "server_error" if status >= 500 else "invalid_request_error"


def rejection_of(failed: Failed) -> RequestRejected:
    """The backend's typed failure as the exception that carries it to the response."""
    status = failed.status if 400 <= failed.status <= 599 else 500
    return RequestRejected(
        failed.message,
        status=status,
        code=failed.code,
        retry_after_s=failed.retry_after_s,
    )


def internal_error(request_id: str) -> RequestRejected:
    """What a client sees of a bug: the id under which the log has the rest."""
    return RequestRejected(
        f"internal error; the server log has the cause under request id {request_id}",
        status=500,
        code="internal_error",
    )


def shutting_down() -> RequestRejected:
    """What a client sees of a request that the server's end cut off."""
    return RequestRejected(
        "the server is shutting down; send the request again",
        status=503,
        code="shutting_down",
        retry_after_s=1.0,
    )


def error_json(error: RequestRejected) -> bytes:
    """The encoded error object."""
    kind = error.kind
    if kind == "invalid_request_error":  # the default of whoever raised it
        kind = kind_of_status(error.status)
    body: dict[str, Any] = {
        "message": error.message,
        "type": kind,
        "param": error.param,
        "code": error.code,
    }
    return msgspec.json.encode({"error": body})


def retry_after(seconds: float | None) -> bytes | None:
    """The value of a Retry-After header: whole seconds, at least one."""
    if seconds is None:
        return None
    if math.isnan(seconds):
        return b"1"
    return b"%d" % math.ceil(min(max(seconds, 1.0), MAX_RETRY_AFTER_S))
