"""What the supervisor tells a worker process on its standard input, once."""

import msgspec

from baton.config import BatonConfig
from baton.core.ids import Role


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One life of one worker process."""

    worker_id: str
    ordinal: int
    epoch: int
    role: Role
    cores: tuple[int, ...]
    model_path: str
    endpoint: str
    router_endpoint: str
    trace_path: str = ""
    config: BatonConfig


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """One line a worker prints while it starts."""

    stage: str = ""
    fraction: float = 0.0
    error: str = ""
    report: str = ""
