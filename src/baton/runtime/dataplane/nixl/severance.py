"""Lives that are over, until the connection to each is known to be broken.

A process that is dead writes no more, but what it posted over tcp may still lie in the buffers of
two kernels, and UCX would put it where it was meant to go. Both directions of a pair share one
connection (seen, whoever opened it), and UCX closes it when it reports the peer as gone: after that
report nothing that the peer posted can land. So a note is sent to the dead, again and again, until
that report comes.
"""

import contextlib
import time

from baton.runtime.dataplane.nixl.agent import Agent, EngineFault
from baton.runtime.dataplane.nixl.notes import pack
from baton.runtime.dataplane.nixl.peer import Peer

_PAUSE_S = 0.01
_LONG_PAUSE_S = 1.0
_MAX_QUICK = 100
"""Notes to one life before the pauses become long: a host that cannot be reached answers none."""
Life = tuple[str, int]


class Severance:
    """`is_open` and `keep` may be called on any thread, all else on the agent's."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._open: dict[Life, Peer] = {}
        self._probed: dict[Life, tuple[int, float]] = {}
        """Of the dead: how often they were written to, and when last (s)."""

    def is_open(self, life: Life) -> bool:
        """Whether bytes of that life may still land here."""
        return life in self._open

    def keep(self, peer: Peer) -> None:
        """A peer was let go of; its agent stays known, or nobody could see the connection break."""
        self._open[(peer.descriptor.worker_id, peer.descriptor.epoch)] = peer

    def ask(self, life: Life) -> None:
        """The process of that life is dead: from now on `take_broken` writes to it."""
        if life in self._open:
            self._probed.setdefault(life, (0, 0.0))

    def take_broken(self) -> list[Peer]:
        """Write to the dead whose turn it is; returns those whose connection is broken.

        It goes on without being asked again, or their agents and connections would stay.
        """
        return [peer for life in list(self._probed) if (peer := self._probe(life)) is not None]

    def _probe(self, life: Life) -> Peer | None:
        """Were the process alive, this would be an empty note to it, which changes nothing."""
        peer, (count, last_s) = self._open[life], self._probed[life]
        now_s = time.perf_counter()
        if now_s - last_s < (_PAUSE_S if count < _MAX_QUICK else _LONG_PAUSE_S):
            return None
        self._probed[life] = count + 1, now_s
        try:
            self._agent.notify(peer.descriptor.agent, pack(peer.descriptor.token, ()))
        except EngineFault as error:
            if error.is_peer_gone:
                del self._open[life], self._probed[life]
                return peer
        return None

    def revive(self, name: str) -> Peer | None:
        """The agent of that name is to be met again: its life is not over after all."""
        for life, peer in self._open.items():
            if peer.descriptor.agent == name:
                del self._open[life]
                self._probed.pop(life, None)
                return peer
        return None

    def close(self) -> None:
        """Forget all of them; a moment later the agent is gone with its connections."""
        for peer in self._open.values():
            with contextlib.suppress(EngineFault):
                self._agent.remove(peer.descriptor.agent)
        self._open.clear()
        self._probed.clear()
        del self._agent
