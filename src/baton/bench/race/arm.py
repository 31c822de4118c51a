"""The arms of a race: ways to serve one model on the same cores (papers: Sarathi-Serve, DistServe).

Every arm uses every core, with as many engine threads as cores in all.
"""

import msgspec

from baton.config import BatonConfig
from baton.errors import ConfigError

_KV_NBYTES = 256 << 20
_WHOLE_PROMPTS = 8192
"""Token budget of an arm that does not chunk: above every prompt of a race."""


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment of its own; `split` runs prefill and decode on different workers."""

    name: str
    title: str
    prefill: int = 0
    decode: int = 0
    mixed: int = 0
    threads: int = 1
    batch_policy: str = "sarathi_serve"
    max_batch_tokens: int = 512

    @property
    def split(self) -> bool:
        """Whether a handoff is part of every request."""
        return self.prefill > 0

    @property
    def num_cores(self) -> int:
        """Engine threads in all, one core each: the denominator of goodput per core."""
        return (self.prefill + self.decode + self.mixed) * self.threads

    def configure(self, base: BatonConfig) -> BatonConfig:
        """The configuration of this arm's deployment, on a free port of loopback."""
        replace = msgspec.structs.replace
        return replace(
            base,
            # `baton compare` proves exactness; here it would only lengthen the start.
            model=replace(base.model, self_test=False),
            cluster=replace(
                base.cluster, prefill=self.prefill, decode=self.decode, mixed=self.mixed
            ),
            worker=replace(
                base.worker,
                threads=self.threads,
                batch_policy=self.batch_policy,
                max_batch_tokens=self.max_batch_tokens,
                kv_nbytes=min(base.worker.kv_nbytes, _KV_NBYTES),
            ),
            gateway=replace(base.gateway, host="127.0.0.1", port=0),
        )


def prefill_first(num_cores: int) -> Arm:
    """One engine over all cores, whole prompts before decodes, as vLLM v0 did it."""
    return Arm(
        name="colocated",
        title=f"colocated, {num_cores} threads, prefill-first",
        mixed=1,
        threads=num_cores,
        batch_policy="prefill_first",
        max_batch_tokens=_WHOLE_PROMPTS,
    )


def chunked(num_cores: int, budget: int, name: str = "colocated-chunked") -> Arm:
    """One engine over all cores under Sarathi-Serve with a token budget."""
    return Arm(
        name=name,
        title=f"colocated, {num_cores} threads, chunks of {budget}",
        mixed=1,
        threads=num_cores,
        max_batch_tokens=budget,
    )


def split_arm(num_cores: int) -> Arm:
    """Half of the cores compute prompts, the other half decodes."""
    return Arm(
        name="split",
        title=f"split, {num_cores // 2} prefill + {num_cores - num_cores // 2} decode",
        prefill=num_cores // 2,
        decode=num_cores - num_cores // 2,
    )


def arms(num_cores: int, budget: int) -> tuple[Arm, ...]:
    """The whole field. Raises ConfigError where there is nothing to split."""
    if num_cores < 2:
        raise ConfigError(
            f"baton race: {num_cores} core; splitting needs at least 2 (see `taskset`)"
        )
    return (
        prefill_first(num_cores),
        chunked(num_cores, budget),
        Arm(
            name="replicas",
            title=f"{num_cores} colocated replicas, prefill-first",
            batch_policy="prefill_first",
            max_batch_tokens=_WHOLE_PROMPTS,
            mixed=num_cores,
        ),
        Arm(
            name="replicas-chunked",
            title=f"{num_cores} colocated replicas, chunks of {budget}",
            max_batch_tokens=budget,
            mixed=num_cores,
        ),
        split_arm(num_cores),
    )
