"""How a leg fails: one exception with a label, and the refusal that a client sees of it."""

from typing import Any

import msgspec

from baton.errors import RequestRejected

MAX_MESSAGE_CHARS = 2000
_OURS = frozenset({408, 425, 429})
"""Statuses below 500 that speak of the server's state and not of the request."""


class LegFailed(Exception):
    """A server did not do its leg. `reason` is a label of metrics, `status` one of HTTP or 0."""

    def __init__(self, leg: str, server: str, reason: str, status: int = 0, body: bytes = b""):
        super().__init__(f"{leg} at {server}: {reason}")
        self.leg = leg
        self.server = server
        self.reason = reason
        self.status = status
        self.body = body

    @property
    def is_clients(self) -> bool:
        """The request itself is at fault: another server would refuse it as well."""
        return 400 <= self.status < 500 and self.status not in _OURS

    def rejection(self) -> RequestRejected:
        """What the client gets when nothing else is tried."""
        error = upstream_error(self.body)
        if self.is_clients or self.status == 429:
            return RequestRejected(
                error.get("message") or f"the {self.leg} server answered {self.status}",
                status=self.status,
                kind=error.get("type") or "invalid_request_error",
                param=error.get("param"),
                code=error.get("code"),
                retry_after_s=1.0 if self.status == 429 else None,
            )
        said = error.get("message") or ""
        if self.reason == "timeout":
            return RequestRejected(
                f"the {self.leg} server {self.server} did not answer in time",
                status=504,
                code=f"{self.leg}_timeout",
                retry_after_s=1.0,
            )
        return RequestRejected(
            f"the {self.leg} server {self.server} failed ({self.reason})"
            + (f": {said}" if said else ""),
            status=502,
            code=f"{self.leg}_failed",
            retry_after_s=1.0,
        )


def upstream_error(body: bytes) -> dict[str, Any]:
    """Message, type, param and code of an error in either form that servers use; {} if none."""
    try:
        tree = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return {}
    if not isinstance(tree, dict):
        return {}
    inner = tree.get("error", tree if tree.get("object") == "error" else {})
    if isinstance(inner, str):
        inner = {"message": inner}
    if not isinstance(inner, dict):
        return {}
    code = inner.get("code")
    return {
        "message": str(inner.get("message") or "")[:MAX_MESSAGE_CHARS],
        "type": inner["type"] if isinstance(inner.get("type"), str) else None,
        "param": inner["param"] if isinstance(inner.get("param"), str) else None,
        "code": code if code is None or isinstance(code, str) else str(code),
    }
