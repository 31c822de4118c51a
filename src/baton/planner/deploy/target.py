"""What a deployment serves: the model, its longest request, and the targets it was planned for."""

import re

import msgspec

from baton.errors import ConfigError

_NAME = re.compile(r"[^a-z0-9]+")
MAX_NAME = 40
"""A label of Kubernetes has 63 characters, and pools append to it."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that both engines need beside the blueprint."""

    model: str
    """What the engine loads: a folder or a hub id."""
    max_model_len: int
    token_nbytes: int
    """K/V of one token over all layers and GPUs."""
    ttft_ms: float
    tpot_ms: float
    gpus_per_node: int
    is_cpu: bool = False
    """Planned from a profile of `baton profile`: Baton serves it, on cores."""
    memory_utilization: float = 0.9
    comment: str = ""
    """What was planned, for the head of each file."""

    def __post_init__(self) -> None:
        if self.max_model_len < 2:
            raise ConfigError(f"deployment: max_model_len {self.max_model_len}; at least 2 tokens")

    @property
    def name(self) -> str:
        """Fit for a host name: small letters, digits and dashes."""
        short = _NAME.sub("-", self.model.rsplit("/", 1)[-1].lower()).strip("-")[:MAX_NAME]
        return short.strip("-") or "model"
