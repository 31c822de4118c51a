"""Moving averages of what a put costs: bytes per microsecond, and a fixed part."""

import time

import numpy as np

from baton.runtime.dataplane.checksum import checksum, copy_and_checksum
from baton.runtime.dataplane.plane import Rates

_WEIGHT = 0.1
_BANDWIDTH_MIN_NBYTES = 64 << 10
"""Below this the clock and the interpreter are most of a copy, so it says nothing of bandwidth."""
_SCRATCH_NBYTES = 8 << 20
_PROBES = 16
_RUNS = 256


class Meter:
    """Written by the transfer thread, read by any other."""

    def __init__(self, *, hashed: bool) -> None:
        self._hashed = hashed
        self._bytes_per_us = 4000.0
        self._overhead_us = 30.0
        self._run_us = 1.0
        self._digest_bytes_per_us = 0.0

    def observe(self, nbytes: int, copy_us: float, total_us: float) -> None:
        """Learn from one finished put."""
        if nbytes >= _BANDWIDTH_MIN_NBYTES and copy_us > 0:
            self._bytes_per_us += _WEIGHT * (nbytes / copy_us - self._bytes_per_us)
        self._overhead_us += _WEIGHT * (total_us - copy_us - self._overhead_us)

    def rates(self) -> Rates:
        """Return the present averages."""
        return Rates(
            bytes_per_us=self._bytes_per_us,
            overhead_us=self._overhead_us,
            run_us=self._run_us,
            digest_bytes_per_us=self._digest_bytes_per_us,
        )

    def calibrate(self) -> Rates:
        """Replace the built-in guesses by a copy of private memory; takes about 10 ms."""
        source = np.ones(_SCRATCH_NBYTES, dtype=np.uint8)
        destination = np.zeros(_SCRATCH_NBYTES, dtype=np.uint8)
        started = time.perf_counter()
        copy_and_checksum([destination], [source], hashed=self._hashed)
        copied = time.perf_counter()
        for probe in range(_PROBES):
            run = slice(probe, probe + 1)
            copy_and_checksum([destination[run]], [source[run]], hashed=self._hashed)
        probed = time.perf_counter()
        runs = [slice(2 * run, 2 * run + 1) for run in range(_RUNS)]
        copy_and_checksum(
            [destination[run] for run in runs], [source[run] for run in runs], hashed=self._hashed
        )
        scattered = time.perf_counter()
        self._run_us = 1e6 * (scattered - probed) / _RUNS
        if self._hashed:
            checksum([destination])
            self._digest_bytes_per_us = _SCRATCH_NBYTES / (1e6 * (time.perf_counter() - scattered))
        self._bytes_per_us = _SCRATCH_NBYTES / (1e6 * (copied - started))
        self._overhead_us = 1e6 * (probed - copied) / _PROBES
        return self.rates()
