"""The worker's own pool as a tier: one block is scattered, a piece in each layer."""

from baton.core.layout import KVLayout
from baton.runtime.dataplane.arena import Bytes
from baton.runtime.staging_thread import Stager


class MemoryTier:
    """Views of blocks in `[layer][block]` memory: the pool itself, or its mirror and a stager."""

    def __init__(
        self, memory: Bytes, layout: KVLayout, num_blocks: int, stager: Stager | None = None
    ) -> None:
        nbytes = num_blocks * layout.bytes_per_block
        shape = (layout.num_layers, num_blocks, layout.layer_block_nbytes)
        self._blocks = memory[:nbytes].reshape(shape)
        self._all_layers = range(layout.num_layers)
        self._stager = stager

    def layers(self, block: int) -> Bytes:
        """A block as `[layer][byte]`; its layers lie far apart."""
        return self._blocks[:, block]

    def fetch(self, block: int) -> None:
        """Bring a block from the device into the mirror, before it is read here."""
        if self._stager is not None:
            self._stager.copy_out(self._all_layers, (block,))

    def settle(self, block: int) -> None:
        """Bring a block from the mirror to the device, after it was written and verified."""
        if self._stager is not None:
            self._stager.copy_in(self._all_layers, (block,))

    def close(self) -> None:
        """Let the memory go; nothing can be copied any more."""
        self._blocks = self._blocks[:, :0]
