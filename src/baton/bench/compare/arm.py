"""The deployments under comparison: the colocated reference and the disaggregated arms."""

from itertools import product

import msgspec

from baton.config import BatonConfig
from baton.core.ids import Direction, Mode
from baton.core.layout import KVLayout

REFERENCE = "colocated"
DEFAULT = "default"
TIGHT = "tight-pool"
TIGHT_BLOCKS = 44


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment. None keeps what the configuration says."""

    name: str
    mode: Mode = Mode.DISAGGREGATED
    direction: Direction | None = None
    schedule: str = ""
    narrow: bool = False
    """A credit window of a few blocks of one layer, which most prompts exceed many times."""
    checksum: bool | None = None
    pool_blocks: int = 0
    """Blocks of each K/V pool, and no growth reserved, so that decode has to preempt."""

    decode_factor: int = 0
    """Blocks of decode workers are so many times as long as those of prefill workers."""

    @property
    def needs_layout(self) -> bool:
        """Whether the model's layout must be known before this arm can be configured."""
        return self.narrow or self.pool_blocks > 0

    def config(self, base: BatonConfig, layout: KVLayout | None) -> BatonConfig:
        """The configuration of this arm's deployment."""
        cluster, transfer = base.cluster, base.transfer
        if self.mode is Mode.COLOCATED:
            cluster = msgspec.structs.replace(cluster, prefill=0, decode=0, mixed=1, prefill_pp=1)
        else:
            prefill, decode = max(1, cluster.prefill), max(1, cluster.decode)
            cluster = msgspec.structs.replace(cluster, prefill=prefill, decode=decode, mixed=0)
        if self.decode_factor:
            size = self.decode_factor * base.worker.block_size
            cluster = msgspec.structs.replace(cluster, decode_block_size=size)
        if self.direction is not None:
            transfer = msgspec.structs.replace(transfer, direction=self.direction)
        if self.schedule:
            transfer = msgspec.structs.replace(transfer, schedule=self.schedule)
        if self.checksum is not None:
            transfer = msgspec.structs.replace(transfer, checksum=self.checksum)
        if self.needs_layout:
            assert layout is not None, "windows and pools are measured in blocks"
        if layout is not None and self.pool_blocks:
            nbytes = self.pool_blocks * layout.bytes_per_block
            worker = msgspec.structs.replace(base.worker, kv_nbytes=nbytes, growth_tokens=0)
            base = msgspec.structs.replace(base, worker=worker)
        if layout is not None and self.narrow:
            size = layout.layer_block_nbytes
            transfer = msgspec.structs.replace(
                transfer, chunk_nbytes=2 * size, credit_nbytes=5 * size
            )
        return msgspec.structs.replace(base, cluster=cluster, transfer=transfer)


def reference_arm() -> Arm:
    """One mixed worker in one process: the answers that all others must repeat."""
    return Arm(name=REFERENCE, mode=Mode.COLOCATED)


def candidate_arms(every: bool) -> tuple[Arm, ...]:
    """The default transfer settings, or also a tight pool and every triple of the others."""
    arms = [Arm(name=DEFAULT)]
    if every:
        arms.append(Arm(name=TIGHT, pool_blocks=TIGHT_BLOCKS))
        arms.append(Arm(name="aggregated", schedule="aggregated"))
        arms.append(Arm(name="long-blocks", decode_factor=2))
        for direction, schedule, narrow in product(Direction, ("layer", "request"), (False, True)):
            odd = (direction is Direction.PULL) ^ (schedule == "request") ^ narrow
            words = [str(direction), schedule, "narrow" if narrow else "wide"]
            words.append("unchecked" if odd else "checked")
            arms.append(
                Arm(
                    name="-".join(words),
                    direction=direction,
                    schedule=schedule,
                    narrow=narrow,
                    checksum=not odd,
                )
            )
    return tuple(arms)
