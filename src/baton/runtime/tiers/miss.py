"""Why a block could not be brought from a lower tier: always a miss, never a wrong block."""

from enum import StrEnum


class MissKind(StrEnum):
    """What was found in place of the block; the values name counters."""

    ABSENT = "absent"
    """The file is gone, or the slot holds nothing."""
    TRUNCATED = "truncated"
    """Shorter than its header says."""
    CORRUPT = "corrupt"
    """A checksum does not agree."""
    FOREIGN = "foreign"
    """Another format, layout, model, arithmetic or block."""
    STALE = "stale"
    """Of another generation of the cache."""


class TierMiss(Exception):
    """Nothing that may be used lies there; the text says where and why."""

    def __init__(self, kind: MissKind, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
