"""The deployments under comparison: the colocated reference and the disaggregated arms."""

from itertools import product

import msgspec

from baton.config import BatonConfig
from baton.core.ids import Direction, Mode
from baton.core.layout import KVLayout

REFERENCE = "colocated"
DEFAULT = "default"


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment. None keeps what the configuration says."""

    name: str
    mode: Mode = Mode.DISAGGREGATED
    direction: Direction | None = None
    schedule: str = ""
    narrow: bool = False
    """A credit window of a few blocks of one layer, which most prompts exceed many times."""
    checksum: bool | None = None

    def config(self, base: BatonConfig, layout: KVLayout | None) -> BatonConfig:
        """The configuration of this arm's deployment; a narrow one needs the model's layout."""
        cluster, transfer = base.cluster, base.transfer
        if self.mode is Mode.COLOCATED:
            cluster = msgspec.structs.replace(cluster, prefill=0, decode=0, mixed=1)
        else:
            prefill, decode = max(1, cluster.prefill), max(1, cluster.decode)
            cluster = msgspec.structs.replace(cluster, prefill=prefill, decode=decode, mixed=0)
        if self.direction is not None:
            transfer = msgspec.structs.replace(transfer, direction=self.direction)
        if self.schedule:
            transfer = msgspec.structs.replace(transfer, schedule=self.schedule)
        if self.checksum is not None:
            transfer = msgspec.structs.replace(transfer, checksum=self.checksum)
        if self.narrow:
            assert layout is not None, "a narrow window is measured in blocks of a layer"
            size = layout.layer_block_nbytes
            transfer = msgspec.structs.replace(
                transfer, chunk_nbytes=2 * size, credit_nbytes=5 * size
            )
        return msgspec.structs.replace(base, cluster=cluster, transfer=transfer)


def reference_arm() -> Arm:
    """One mixed worker: the answers that all others must repeat."""
    return Arm(name=REFERENCE, mode=Mode.COLOCATED)


def candidate_arms(every: bool) -> tuple[Arm, ...]:
    """The default transfer settings, or also eight that hold every triple of the four settings."""
    arms = [Arm(name=DEFAULT)]
    if every:
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
