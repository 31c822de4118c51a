"""The exceptions Baton raises on purpose; everything else is a bug."""


class BatonError(Exception):
    """Base of every deliberate error."""


class ConfigError(BatonError):
    """A configuration or command line that cannot work; the text names place, value, remedy."""


class LocalProtocolError(BatonError):
    """We drove a state machine wrongly: an event that its table does not allow."""


class RemoteProtocolError(BatonError):
    """A peer sent something that the protocol does not allow."""


class EngineLost(BatonError):
    """A process that computes for a worker has ended: the worker's own life is over with it."""


class ModelRefused(BatonError):
    """A model that cannot be served exactly; the text says which check failed."""


class RequestRejected(BatonError):
    """A client request that cannot be accepted, as one OpenAI error object.

    `status` is the HTTP status; `param` names the field; `retry_after_s` is set when waiting helps.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s


class RemapRefused(BatonError):
    """Two caches between which no copy is exact; `name` is the first thing in the way."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
