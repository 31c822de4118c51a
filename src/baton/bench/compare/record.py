"""What one arm observed of one request: all that is compared, and what explains it."""

import msgspec

from baton.core.ids import Mode


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. `label` names the request within its case: round.ask or call.choice."""

    case: str
    label: str
    mode: str = ""
    """The mode of the attempt that answered, as the client was told."""
    tokens: tuple[int, ...] = ()
    text: str = ""
    logits: tuple[str, ...] = ()
    """Digest of the logits that each token was drawn from; empty over HTTP."""
    kv_digest: str = ""
    logprobs: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    visible_tokens: int = -1
    """Prefix that the decode worker held already; -1 where it is not known."""
    moved_nbytes: int = -1
    num_failed_attempts: int = 0
    num_preemptions: int = 0
    error: str = ""
    digests: bool = True
    """Whether logits and K/V digests were asked for."""
    whole: bool = True
    """False when the request was given up on purpose, so that its end is not compared."""
    expected_visible: int = -1
    expected_cached: int = -1
    unexercised: str = ""
    """Why this answer does not show what its case is for, or ""."""

    @property
    def key(self) -> tuple[str, str]:
        """What makes two records of two arms the same request."""
        return (self.case, self.label)


class ArmRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one deployment answered."""

    arm: str
    mode: Mode
    """The mode that every request of this arm must have run in."""
    deterministic: bool
    records: tuple[Record, ...]
    handoffs: int = 0
    duration_s: float = 0.0
