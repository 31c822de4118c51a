"""One load at its destination: what vLLM asked for, and the transfer once its source is met."""

from baton.core.capability import SignedCapability
from baton.integrations.vllm.context import PeerKey, source_of
from baton.integrations.vllm.messages import Claim
from baton.integrations.vllm.orders import Load
from baton.integrations.vllm.ticket import Ticket
from baton.nodes.incoming import Incoming
from baton.protocol.destination import DestinationTransfer


class Loading:
    """From vLLM's order until the blocks are published, or quiet."""

    def __init__(self, order: Load, ticket: Ticket, now_us: int) -> None:
        self.order = order
        self.ticket = ticket
        self.incoming: Incoming | None = None
        """None until the source is met."""
        self.is_claimed = False
        """The source has answered the claim."""
        self.next_retry_us = 0
        self.began_us = now_us
        self.deadline_us = now_us + 1000 * ticket.deadline_ms
        self.expires_us = 0
        self.abort_reason = ""
        self.quiet_us = 0
        """When a source that says nothing has certainly stopped by itself."""

    @property
    def source(self) -> PeerKey:
        """The life that sends."""
        return source_of(self.ticket.fence)

    @property
    def transfer(self) -> DestinationTransfer | None:
        """The transaction, once there is one."""
        return self.incoming.transfer if self.incoming is not None else None

    def claim(self) -> Claim:
        """What the source is asked for."""
        assert self.incoming is not None
        capability: SignedCapability = self.ticket.capability
        grant = self.incoming.transfer.grant
        return Claim(fence=grant.fence, grant=grant, capability=capability)
