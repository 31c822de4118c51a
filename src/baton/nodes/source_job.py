"""One accepted prefill for another worker, from the queue to the release of its copy."""

from baton.core.ids import Fence
from baton.core.messages import Prefill
from baton.core.request import Token
from baton.nodes.sequence import Sequence
from baton.protocol.source import SourceTransfer
from baton.protocol.source_copy import CopyState


class SourceJob:
    """One accepted prefill for another worker, from queue to release."""

    def __init__(self, sequence: Sequence, prefill: Prefill) -> None:
        self.sequence = sequence
        self.grant = prefill.grant
        self.transfer: SourceTransfer | None = None
        self.first_token: Token | None = None
        self.io_quiesced = False
        self.capability = prefill.capability
        self.is_authorized = not self.grant.num_remote_blocks
        """The destination lets these bytes in; where none cross, nobody has to be asked."""
        self.next_present_us = 0

    @property
    def is_aborting(self) -> bool:
        """True from an abort until everything is quiet."""
        return self.transfer is not None and self.transfer.state is CopyState.FENCING

    @property
    def fence(self) -> Fence:
        """The fence of the handoff."""
        return self.grant.fence
