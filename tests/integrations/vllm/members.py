"""Two connectors as their gateway knows them, and keys."""

from baton.core.ids import Fence
from baton.core.layout import KVLayout, ModelIdentity
from baton.integrations.vllm.info import ConnectorInfo, Member
from baton.integrations.vllm.support import SupportFacts
from baton.protocol.signing import Ed25519Signer, Ed25519Verifier

SIGNER = Ed25519Signer("gateway", bytes(range(32)))
VERIFIER = Ed25519Verifier("gateway", SIGNER.public_key)
LAYOUT = KVLayout(num_layers=3, num_kv_heads=2, head_dim=4, block_size=32, axis_order="test")
IDENTITY = ModelIdentity(model="m", checkpoint_hash="c", tokenizer_hash="t")
FACTS = SupportFacts(
    vllm_version="0.32.0",
    attention_backend="CPU_ATTN",
    cache_order="LBHNC",
    dtype="float32",
    block_size=32,
    num_kv_heads=2,
)


def info(worker_id: str, epoch: int = 7, role: str = "kv_both") -> ConnectorInfo:
    member = Member(worker_id=worker_id, epoch=epoch, endpoints=("tcp://127.0.0.1:1",))
    return ConnectorInfo(
        member=member,
        role=role,
        num_blocks=16,
        max_model_len=256,
        layout=LAYOUT,
        identity=IDENTITY,
        facts=FACTS,
    )


def fence(
    source: ConnectorInfo, destination: ConnectorInfo, request_id: str = "r1", generation: int = 1
) -> Fence:
    return Fence(
        tenant_id="t",
        request_id=request_id,
        generation=generation,
        attempt=1,
        source_id=source.member.worker_id,
        source_epoch=source.member.epoch,
        destination_id=destination.member.worker_id,
        destination_epoch=destination.member.epoch,
    )
