"""A process's own clock: offset and drift against the world's time."""

import msgspec


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """Reads `offset_us` at world time 0 and gains `drift_ppm` microseconds per second."""

    offset_us: int = 0
    drift_ppm: int = 0

    def local_us(self, world_us: int) -> int:
        """What this clock shows at a world time."""
        return self.offset_us + world_us + world_us * self.drift_ppm // 1_000_000

    def world_us(self, local_us: int) -> int:
        """The first world time at which this clock shows at least `local_us`."""
        guess = (local_us - self.offset_us) * 1_000_000 // (1_000_000 + self.drift_ppm)
        while self.local_us(guess) < local_us:
            guess += 1
        return guess
