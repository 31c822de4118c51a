"""A true introduction of a worker that serves nothing, to bend one field at a time."""

import msgspec

from baton.core.ids import Role
from baton.core.layout import KVLayout, ModelIdentity, ModelInfo
from baton.core.snapshot import WorkerInfo
from baton.runtime.dataplane import ArenaDescriptor, RegionDescriptor, ShmRegion

LAYOUT = KVLayout(num_layers=2, num_kv_heads=1, head_dim=2, block_size=4)
NUM_BLOCKS = 8


def true_region(worker_id: str, epoch: int) -> RegionDescriptor:
    """The descriptor of a region that has room for the pool."""
    nbytes = NUM_BLOCKS * LAYOUT.bytes_per_block
    arena = ArenaDescriptor(name="baton-none", nbytes=nbytes, worker_id=worker_id, epoch=epoch)
    return ShmRegion(arena=arena, offset=0, nbytes=nbytes, address="none", token=b"t" * 16)


def true_info(worker_id: str, epoch: int, endpoint: str, control_key: bytes = b"") -> WorkerInfo:
    """What a worker would say of itself."""
    model = ModelInfo(
        name="m",
        max_model_len=64,
        vocab_size=16,
        eos_token_ids=(1,),
        identity=ModelIdentity(model="m", checkpoint_hash="c", tokenizer_hash="t"),
        layout=LAYOUT,
    )
    return WorkerInfo(
        worker_id=worker_id,
        epoch=epoch,
        role=Role.MIXED,
        pid=1,
        version="v",
        endpoint=endpoint,
        model=model,
        num_blocks=NUM_BLOCKS,
        max_num_seqs=4,
        region=msgspec.msgpack.encode(true_region(worker_id, epoch)),
        control_key=control_key,
    )
