"""What parent and engine child say to each other, one JSON object a line."""

import msgspec

from baton.bench.profile.shapes import Room, Shape
from baton.config import BatonConfig
from baton.policy.service_profile import StepGrid, Subject

_QUIET_SHARE = 0.95


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: what to load and where to run."""

    model_path: str
    cores: tuple[int, ...]
    config: BatonConfig
    parent_pid: int


class Described(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first answer: what was loaded, or why it was not."""

    subject: Subject | None = None
    grid: StepGrid = StepGrid()
    room: Room | None = None
    error: str = ""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Time one step, or (endless) run it until the next order is here."""

    shape: Shape
    endless: bool = False


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """One step, and how much of it its thread worked; the same for an engine of several."""

    wall_us: float
    cpu_us: float

    @property
    def kept_core(self) -> bool:
        """False when another process had the core for a part of the step."""
        return self.cpu_us >= _QUIET_SHARE * self.wall_us
