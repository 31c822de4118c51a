"""Whether a claim may be honoured: its grant against the held prompt and the ticket's right."""

from baton.core.capability import abi_digest, regions_of
from baton.core.ids import Direction
from baton.core.manifest import grant_defect
from baton.integrations.vllm.context import Context, destination_of, unreserved
from baton.integrations.vllm.hold import HeldPrompt
from baton.integrations.vllm.messages import Claim
from baton.protocol.capability import Access


def claim_defect(context: Context, held: HeldPrompt, claim: Claim) -> str:
    """What is wrong with a claim, or "": then its capability is spent here, on this grant."""
    grant = claim.grant
    peer = context.peers[destination_of(claim.fence)]
    if grant.fence != claim.fence or unreserved(claim.fence) != held.ticket.fence:
        return "grant_fence"
    if grant.num_tokens != len(held.token_ids):
        return "grant_num_tokens"
    if grant.direction is not held.ticket.direction:
        return "grant_direction"
    bad = grant_defect(grant, context.outward, peer.info.num_blocks)
    if bad:
        return f"grant_{bad}"
    denial = context.gate.admit(claim.capability, _access(context, held, claim), context.now_us)
    return f"capability_{denial}" if denial is not None else ""


def _access(context: Context, held: HeldPrompt, claim: Claim) -> Access:
    """The granted blocks for a write; for a read also those of this side that hold the set."""
    grant, fence = claim.grant, claim.fence
    layout = context.peers[destination_of(fence)].info.layout
    regions = regions_of(*destination_of(fence), grant.block_ids)
    if grant.direction is Direction.PULL:
        regions += regions_of(*context.key, held.block_ids)
    return Access(
        fence=unreserved(fence),
        route_epoch=held.ticket.capability.capability.route_epoch,
        direction=grant.direction,
        regions=regions,
        nbytes=grant.num_remote_blocks * context.outward.bytes_per_block,
        abi_digest=abi_digest(context.info.identity, layout, context.info.layout),
    )
