"""What a route is asked for: one request, what is cached of it where, and its two clocks."""

from collections.abc import Mapping

import msgspec

from baton.core.ids import Schedule

_NOWHERE: Mapping[str, int] = {}


class RouteQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one request. Depths count leading blocks of its prompt, for each owner."""

    draw: str
    """Names the attempt: a policy that spreads evenly spreads by it."""
    num_tokens: int
    num_blocks: int
    """K/V blocks that the decode worker has to have."""
    num_output_tokens: int = 0
    """How long the answer is expected to be."""
    block_size: int = 16
    bytes_per_token: int = 0
    num_layers: int = 1
    schedule: Schedule = Schedule.LAYER
    depths: Mapping[str, int] = _NOWHERE
    """Cached at the owner in whichever tier."""
    memory_depths: Mapping[str, int] = _NOWHERE
    """Cached in the owner's own pool, where its engine reads."""
    bytes_per_us: float = 0.0
    """Of the link between workers; 0 until measured."""
    overhead_us: float = 0.0
    """Of one operation of the link."""
    ttft_slo_us: int = 0
    """What is left of the time to the first token; 0: no target."""
    tpot_slo_us: int = 0
    avoid_prefill: frozenset[str] = frozenset()
    balancing_threshold: float = 2.0
    """Ratio of the best prefix to the local one from which on a copy is priced."""
    may_fetch: bool = False
    """Prefixes may be copied between workers."""

    @property
    def max_cached_blocks(self) -> int:
        """Most blocks that a prefill can reuse: the last row is always computed."""
        return (self.num_tokens - 1) // self.block_size

    @property
    def block_nbytes(self) -> int:
        """Bytes of one block over all layers."""
        return self.block_size * self.bytes_per_token
