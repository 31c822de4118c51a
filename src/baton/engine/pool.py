"""The paged K/V pool: one tensor `[layer][block][K|V][kv head][slot][dim]`."""

from collections.abc import Sequence

import torch
import xxhash

from baton.core.layout import KVLayout
from baton.errors import ConfigError

TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Pool:
    """Blocks of all layers in one allocation, over a caller's buffer or its own memory.

    `layers[i]` is layer i's `[block][K|V][kv head][slot][dim]` view. Every slot may hold stale
    bytes of an earlier request; only the rows that a block table and a length name are state.
    """

    def __init__(
        self,
        layout: KVLayout,
        num_blocks: int,
        device: str = "cpu",
        buffer: memoryview | None = None,
    ) -> None:
        if num_blocks < 1:
            raise ConfigError(f"pool of {num_blocks} blocks; at least one is needed")
        shape = (layout.num_layers, num_blocks, 2, layout.num_kv_heads, layout.block_size,
                 layout.head_dim)  # fmt: skip
        dtype = TORCH_DTYPES[layout.dtype_k]
        if buffer is None:
            self.tensor = torch.zeros(shape, dtype=dtype, device=device)
        else:
            nbytes = num_blocks * layout.bytes_per_block
            if torch.device(device).type != "cpu":
                raise ConfigError(f"a shared-memory pool needs a CPU model, not {device!r}")
            if buffer.nbytes < nbytes or buffer.readonly:
                raise ConfigError(
                    f"pool buffer of {buffer.nbytes} bytes (read-only: {buffer.readonly}); "
                    f"{num_blocks} blocks need {nbytes} writable bytes"
                )
            flat = torch.frombuffer(buffer, dtype=torch.uint8, count=nbytes)
            self.tensor = flat.view(dtype).view(shape)
        self.layout = layout
        self.num_blocks = num_blocks
        self.layer_events: dict[int, torch.cuda.Event] = {}
        """By layer, the event after which its latest rows may be copied; empty on a CPU."""
        self.layers = list(self.tensor.unbind(0))
        on_host = self.tensor.device.type == "cpu" and dtype == torch.float32
        self.arrays = [layer.numpy() for layer in self.layers] if on_host else []

    def layer_written(self, layer: int) -> None:
        """On a GPU, mark where in the stream this step's rows of `layer` are final."""
        if self.tensor.is_cuda:
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
            self.layer_events[layer] = event

    def zero_tail(self, block_table: Sequence[int], num_tokens: int) -> None:
        """Zero the slots behind row `num_tokens - 1` in its block, in all layers.

        Whole blocks then hold nothing but these tokens' rows, whatever used the block before.
        """
        used = num_tokens % self.layout.block_size
        if used:
            self.tensor[:, block_table[num_tokens // self.layout.block_size], :, :, used:] = 0

    def digest(self, block_table: Sequence[int], num_tokens: int) -> str:
        """Digest of exactly `num_tokens` rows of all layers, in (layer, K|V, head, token) order.

        Equal rows give equal digests whatever the block ids, the padding and the block size.
        """
        return digest_pools([self], block_table, num_tokens)

    def add_rows(self, state: xxhash.xxh3_128, block_table: Sequence[int], num_tokens: int) -> None:
        """Feed exactly `num_tokens` rows of all layers to a digest under way."""
        blocks = block_table[: self.layout.num_blocks(num_tokens)]
        if len(blocks) * self.layout.block_size < num_tokens:
            raise ValueError(f"{len(block_table)} blocks do not hold {num_tokens} rows")
        index = torch.tensor(list(blocks), dtype=torch.long, device=self.tensor.device)
        for layer in self.layers:
            rows = layer.index_select(0, index).permute(1, 2, 0, 3, 4).flatten(2, 3)
            rows = rows[:, :, :num_tokens].contiguous().cpu()
            state.update(rows.view(torch.uint8).numpy().data)


def digest_pools(pools: Sequence[Pool], block_table: Sequence[int], num_tokens: int) -> str:
    """`Pool.digest` of a cache whose layers lie in several pools, in order."""
    state = xxhash.xxh3_128()
    for pool in pools:
        pool.add_rows(state, block_table, num_tokens)
    return str(state.hexdigest())
