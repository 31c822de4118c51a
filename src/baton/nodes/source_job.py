"""One accepted prefill for another worker, from the queue to the release of its copy."""

from baton.core.ids import Fence
from baton.core.messages import Prefill
from baton.core.request import Token
from baton.nodes.sequence import Sequence
from baton.protocol.source import SourceTransfer


class SourceJob:
    """One accepted prefill for another worker, from queue to release."""

    def __init__(self, sequence: Sequence, prefill: Prefill) -> None:
        self.sequence = sequence
        self.grant = prefill.grant
        self.transfer: SourceTransfer | None = None
        self.first_token: Token | None = None
        self.io_quiesced = False

    @property
    def fence(self) -> Fence:
        """The fence of the handoff."""
        return self.grant.fence
