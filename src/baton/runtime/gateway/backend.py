"""What the gateway asks of the part that runs requests."""

from collections.abc import AsyncIterator
from typing import Any, Protocol

from msgspec import Struct

from baton.core.delivery import Delivery
from baton.core.deployment_manifest import DeploymentRecord
from baton.core.effects import Trace
from baton.core.layout import ModelInfo
from baton.core.request import Request


class Backend(Protocol):
    """Runs requests; the gateway only translates between HTTP and these calls.

    Every request ends exactly once: its iterator yields `Finished` or `Failed`, or raises
    RequestRejected before the first delivery. After `cancel` nothing may stay held.
    """

    @property
    def info(self) -> ModelInfo | None:
        """The loaded model; None until the workers said hello."""
        ...

    def submit(self, request: Request) -> AsyncIterator[Delivery]:
        """Start `request`; raises RequestRejected (here or at the first step) if not admitted."""
        ...

    def cancel(self, request_id: str, reason: str) -> None:
        """Give up a request; idempotent. `reason` is "stop" or "disconnect"."""
        ...

    def observe(self, trace: Trace) -> None:
        """Record a trace event of the gateway beside those of the router."""
        ...

    def ready(self) -> str:
        """An empty string when a pair of workers can serve, else the reason why not."""
        ...

    def status(self) -> dict[str, Any]:
        """A summary for /version and the status page."""
        ...

    def deployment(self) -> DeploymentRecord | None:
        """Manifest and receipt for /version; None until it is known."""
        ...

    def cache(self) -> Struct:
        """What lives where in the K/V pool, for /cache."""
        ...

    def drain_worker(self, worker_id: str, timeout_s: float) -> None:
        """Begin to remove a worker: nothing new goes there, and it ends when it is idle.

        After so long it ends anyway, and what streams from it goes on elsewhere. Raises
        RequestRejected where it is not up, or nothing could be served without it.
        """
        ...

    def clear_cache(self) -> int:
        """No history that exists now may be reused; returns the cache's new generation."""
        ...

    def traces(self) -> bytes:
        """Trace events of the last requests as lines of JSON; may be empty."""
        ...

    def dashboard(self) -> Struct:
        """What the page at /dashboard shows."""
        ...

    def dashboard_request(self, request_id: str) -> Struct | None:
        """Everything that is kept of one request; None if it is not."""
        ...

    def metrics(self) -> bytes:
        """Further Prometheus text; may be empty."""
        ...
