"""What the supervisor tells a worker process on its standard input, once."""

import msgspec

from baton.config import BatonConfig
from baton.core.ids import Role
from baton.runtime.curve import CurveKeys
from baton.runtime.faults import FaultSpec
from baton.runtime.issuer_key import IssuerKey


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
    router_key: bytes = b""
    """Public control key of the router; empty over ipc."""
    control_keys: CurveKeys | None = None
    """This life's own pair, for tcp."""
    parent_pid: int = 0
    """The kernel ends this life with this process; 0: only the end of its input does."""
    issuer: IssuerKey
    """Whose transfer capabilities this life believes."""
    trace_path: str = ""
    faults: FaultSpec | None = None
    """What a chaos run injects into this life."""
    config: BatonConfig


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """One line a worker prints while it starts."""

    stage: str = ""
    fraction: float = 0.0
    error: str = ""
    report: str = ""
