"""The order of axes in an engine's K/V pool, with the orders that engines use."""

import msgspec

from baton.core.layout import AXIS_ORDER
from baton.errors import ConfigError

AXES = ("layer", "block", "kv", "head", "slot", "dim")


class AxisOrder(msgspec.Struct, frozen=True, kw_only=True):
    """How the bytes of one rank's pool are ordered."""

    order: str = AXIS_ORDER
    """Axes from the outermost to the innermost, as in `KVLayout.axis_order`."""
    num_apart: int = 0
    """Leading axes that do not lie in one allocation: 1 where every layer is a tensor of its own,
    2 where its K and its V are, too. No run reaches from one allocation into another."""
    packing: str = ""
    """Name of the arrangement of what lies inside the head axis, where it is not rows in order: a
    kernel's own tiles. Such blocks move whole, between equal packings, or not at all."""

    def __post_init__(self) -> None:
        if sorted(self.axes) != sorted(AXES) or self.axes[-1] != "dim":
            raise ConfigError(
                f"order is {self.order!r}; name each of {','.join(AXES)} once, dim last"
            )
        apart = self.axes[: max(0, self.num_apart)]
        if self.num_apart < 0 or not set(apart) <= {"layer", "kv"}:
            raise ConfigError(
                f"num_apart is {self.num_apart} with order {self.order!r}; only layers, and K and "
                f"V, lie in allocations of their own, and their axes come first"
            )
        if self.packing and "slot" not in self.tile:
            raise ConfigError(
                f"packing is {self.packing!r} with order {self.order!r}; what is packed lies "
                f"inside the head axis, and there are no slots"
            )

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes, outermost first."""
        return tuple(self.order.split(","))

    @property
    def apart(self) -> tuple[str, ...]:
        """The axes that choose an allocation."""
        return self.axes[: self.num_apart]

    @property
    def tile(self) -> tuple[str, ...]:
        """The axes inside the head axis."""
        return self.axes[self.axes.index("head") + 1 :]


def _apart(order: str, num_apart: int = 1, packing: str = "") -> AxisOrder:
    return AxisOrder(order=order, num_apart=num_apart, packing=packing)


AXIS_ORDERS: dict[str, AxisOrder] = {
    "baton": AxisOrder(),
    "LBHNC": _apart("layer,block,head,slot,kv,dim"),
    "LBNHC": _apart("layer,block,slot,head,kv,dim"),
    "LHBNC": _apart("layer,head,block,slot,kv,dim"),
    "BLHNC": AxisOrder(order="block,layer,head,slot,kv,dim"),
    "BLNHC": AxisOrder(order="block,layer,slot,head,kv,dim"),
    "BHLNC": AxisOrder(order="block,head,layer,slot,kv,dim"),
    "cpu": _apart("layer,block,head,slot,kv,dim", packing="cpu"),
    "flash-nhd": _apart("layer,kv,block,slot,head,dim"),
    "flash-hnd": _apart("layer,kv,block,head,slot,dim"),
    "flashinfer-nhd": _apart("layer,block,kv,slot,head,dim"),
    "flashinfer-hnd": _apart("layer,block,kv,head,slot,dim"),
    "blocks-nhd": AxisOrder(order="block,layer,kv,slot,head,dim"),
    "blocks-hnd": AxisOrder(order="block,head,layer,kv,slot,dim"),
    "split": _apart("kv,layer,block,slot,head,dim", num_apart=2),
}
"""Orders by name. The six of five letters are vLLM's own names (0.32), with K and V beside each
other in a row; `cpu` is what its CPU kernels make of the first. `flash` and `flashinfer` are those
of the attention backends before, `blocks` the same across layers. `split` has K and V of every
layer apart, one row a token, as SGLang's token pool (block size 1 for single tokens)."""
