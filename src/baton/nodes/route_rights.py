"""The router's authority over routes: their epoch, what it revoked, and the rights it mints."""

from baton.core.capability import Region, SignedCapability, abi_digest, regions_of
from baton.core.ids import Direction, Fence
from baton.core.manifest import Grant
from baton.core.reblock import destination_layout
from baton.core.snapshot import WorkerInfo
from baton.protocol.capability import Access, CapabilityIssuer
from baton.protocol.signing import Signer


class RouteRights:
    """`route_epoch` counts every change to who may be paired; it never goes back."""

    def __init__(self, signer: Signer, ttl_us: int) -> None:
        self._issuer = CapabilityIssuer(signer)
        self._ttl_us = ttl_us
        self.route_epoch = 0
        self.revoked_below = 0

    @property
    def issuer(self) -> str:
        """Id of this life of the router; no other life mints under it."""
        return self._issuer.issuer

    def on_fleet_changed(self) -> None:
        """A worker joined or was lost; routes that were chosen before stay good."""
        self.route_epoch += 1

    def revoke(self) -> None:
        """Nothing that was reserved up to now may touch remote memory any more."""
        self.route_epoch += 1
        self.revoked_below = self.route_epoch

    def is_revoked(self, fence: Fence, route_epoch: int) -> bool:
        """True for a route that was taken back; what stays in one worker never is."""
        return route_epoch < self.revoked_below and not fence.colocated

    def mint(self, grant: Grant, source: WorkerInfo, now_us: int) -> SignedCapability | None:
        """The right to exactly this grant; None where no byte crosses between workers.

        It can be exact only now: the destination chose its blocks when it reserved. The source
        chooses its own when there is room to compute, so a reader gets its whole pool.
        """
        if not grant.num_remote_blocks:
            return None
        fence, model = grant.fence, source.model
        layout = destination_layout(grant, model.layout)
        regions = regions_of(fence.destination_id, fence.destination_epoch, grant.block_ids)
        if grant.direction is Direction.PULL:
            regions += (
                Region(
                    worker_id=source.worker_id,
                    worker_epoch=source.epoch,
                    block_start=0,
                    num_blocks=source.num_blocks,
                ),
            )
        access = Access(
            fence=fence,
            route_epoch=grant.route_epoch,
            direction=grant.direction,
            regions=regions,
            nbytes=grant.num_remote_blocks * layout.bytes_per_block,
            abi_digest=abi_digest(model.identity, layout, model.layout),
        )
        return self._issuer.mint(access, now_us=now_us, ttl_us=self._ttl_us)
