"""Notes that have come, from peers whose life is connected here."""

from baton.runtime.dataplane.nixl.agent import Agent
from baton.runtime.dataplane.nixl.notes import BadNote, num_records, unpack
from baton.runtime.dataplane.plane import NixlRegion, Received


class Mailbox:
    """Read on the agent's thread; peers come and go on others."""

    def __init__(self, agent: Agent) -> None:
        self.token = b""
        self.senders: dict[str, NixlRegion] = {}
        """By the name of their agent."""
        self.num_dropped = 0
        self.num_refused = 0
        self._agent: Agent | None = agent
        self._signs = False

    def receive(self) -> list[Received]:
        """The chunks that have landed here; makes progress for everything that still does."""
        assert self._agent is not None, "the mailbox is closed"
        received: list[Received] = []
        for name, notes in self._agent.notes().items():
            sender = self.senders.get(name)
            for note in notes:
                if sender is None:
                    self.num_dropped += num_records(note)
                    continue
                try:
                    received += unpack(note, self.token, sender)
                    self._signs = True
                except BadNote:
                    self.num_refused += 1
        return received

    def take_signs(self) -> bool:
        """Whether a connected peer has written since the last call, be it without chunks."""
        signs, self._signs = self._signs, False
        return signs

    def close(self) -> None:
        """Let go of the agent."""
        self._agent = None
