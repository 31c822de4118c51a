"""What has changed in what a worker holds, since somebody last asked."""

from baton.core.cache import CacheChange, Tier


class ChangeLog:
    """Notes each name that a tier gained or lost; what came and went in between is not told.

    Nothing is noted until `is_enabled`: without a taker the log would grow for ever.
    """

    def __init__(self) -> None:
        self.is_enabled = False
        self._sealed: list[CacheChange] = []
        self._open: dict[tuple[Tier, bytes], bool] = {}

    def stored(self, tier: Tier, block_hash: bytes) -> None:
        """A tier holds this name now."""
        self._note(tier, block_hash, stored=True)

    def removed(self, tier: Tier, block_hash: bytes) -> None:
        """A tier does not hold this name any more."""
        self._note(tier, block_hash, stored=False)

    def _note(self, tier: Tier, block_hash: bytes, *, stored: bool) -> None:
        if not self.is_enabled:
            return
        key = (tier, block_hash)
        if key not in self._open:
            self._open[key] = stored
            return
        assert self._open[key] != stored, f"{tier} is told twice of {block_hash.hex()}"
        del self._open[key]

    def seal(self) -> None:
        """What was noted before may not be undone by what comes: another generation begins."""
        merged: dict[tuple[bool, Tier], list[bytes]] = {}
        for (tier, block_hash), stored in self._open.items():
            merged.setdefault((stored, tier), []).append(block_hash)
        self._open = {}
        for stored, tier in sorted(merged):
            hashes = tuple(merged[stored, tier])
            self._sealed.append(CacheChange(stored=stored, tier=tier, hashes=hashes))

    def take(self) -> list[CacheChange]:
        """Everything since the last call, merged: per tier what is gone, then what is new."""
        if not self._open and not self._sealed:
            return []
        self.seal()
        taken, self._sealed = self._sealed, []
        return taken
