"""The section of the configuration for what is kept in memory of requests that were served."""

import msgspec


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept in memory of requests that were served."""

    live: bool = True
    """Workers tell the gateway when what happened: phases in /metrics, events at /traces."""
    history_requests: int = 1000
    """Requests whose events are kept, about 3 KiB each."""
    otlp_endpoint: str = ""
    """Collector of OpenTelemetry spans, such as http://127.0.0.1:4318 (extra `otel`); "": none."""
