"""What a deployment keeps in memory: model copies and K/V pools, of which splitting needs more."""

import msgspec

from baton.planner.placement.phases import PhasePlan

GIB = 2**30


class Residency(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes over all instances."""

    num_copies: int
    copy_nbytes: int
    """Weights of one complete copy."""
    kv_nbytes: int
    """Of all K/V pools."""

    @property
    def weight_nbytes(self) -> int:
        """Of all copies."""
        return self.num_copies * self.copy_nbytes

    def __str__(self) -> str:
        return (
            f"{self.num_copies} copies x {self.copy_nbytes / GIB:.4g} GiB = "
            f"{self.weight_nbytes / GIB:.4g} GiB of weights, {self.kv_nbytes / GIB:.4g} GiB of K/V"
        )


def residency(
    plan: PhasePlan,
    *,
    copy_nbytes: int,
    token_nbytes: int,
    prefill_kv_tokens: int,
    decode_kv_tokens: int,
) -> Residency:
    """Of a split deployment; K/V tokens are those of one instance."""
    tokens = plan.num_prefill * prefill_kv_tokens + plan.num_decode * decode_kv_tokens
    return Residency(
        num_copies=plan.num_copies, copy_nbytes=copy_nbytes, kv_nbytes=tokens * token_nbytes
    )
