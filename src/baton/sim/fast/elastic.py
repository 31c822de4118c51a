"""A simulation whose workers come and go: opened, closed to new requests, and drained.

Every worker that may ever run is in the deployment; those that are closed cost nothing here. The
caller advances the simulation slice by slice and acts between slices.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError
from baton.sim.fast import columns as c
from baton.sim.fast.deployment import Deployment
from baton.sim.fast.router import route_waiting
from baton.sim.fast.run import Simulation
from baton.sim.fast.workload import FastWorkload

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class ElasticSimulation(Simulation):
    """Starts with some workers open."""

    def __init__(
        self, deployment: Deployment, workload: FastWorkload, opened: Sequence[int]
    ) -> None:
        super().__init__(deployment, workload)
        if not opened:
            raise ConfigError("elastic simulation: no worker is open; open one of each phase")
        self._state.workers[:, c.W_IS_CLOSED] = 1
        self._state.workers[list(opened), c.W_IS_CLOSED] = 0

    def open(self, worker: int, now_us: float) -> None:
        """It takes requests from now on; those that wait for a route are asked again."""
        self._state.workers[worker, c.W_IS_CLOSED] = 0
        self._state.numbers[c.N_NOW_US] = max(self._state.numbers[c.N_NOW_US], now_us)
        route_waiting(self._state, self._network, self._extras)

    def close(self, worker: int) -> None:
        """Nothing new is routed there; what it has goes on."""
        self._state.workers[worker, c.W_IS_CLOSED] = 1

    def is_drained(self, worker: int) -> bool:
        """No request needs it any more."""
        numbers = self._state.requests
        phase = numbers[:, c.R_PHASE]
        is_open = (phase != c.AWAY) & (phase != c.WAITING) & (phase != c.ENDED)
        computes = is_open & (phase != c.DECODING) & (numbers[:, c.R_PREFILL] == worker)
        holds = (numbers[:, c.R_PREFILL] == worker) & (numbers[:, c.R_SOURCE_BLOCKS] > 0) & is_open
        decodes = is_open & (numbers[:, c.R_DECODE] == worker)
        return not bool((computes | holds | decodes).any())

    @property
    def phases(self) -> Ints:
        """Where each request is: the codes of `columns`."""
        return self._state.requests[:, c.R_PHASE]

    @property
    def computed(self) -> Ints:
        """Prompt rows of each request that are computed."""
        return self._state.requests[:, c.R_COMPUTED]

    @property
    def cached(self) -> Ints:
        """Prompt rows of each request that were found."""
        return self._state.requests[:, c.R_CACHED]

    @property
    def produced(self) -> Ints:
        """Tokens of each answer so far."""
        return self._state.requests[:, c.R_PRODUCED]

    @property
    def first_us(self) -> Floats:
        """First token of each request at its client; NaN before."""
        return self._state.request_us[:, c.R_FIRST_US]

    @property
    def last_us(self) -> Floats:
        """Last token of each request at its client; NaN before."""
        return self._state.request_us[:, c.R_LAST_US]

    def load(self, worker: int) -> tuple[int, int]:
        """Prompt tokens and requests that the router has on its account there."""
        row = self._state.workers[worker]
        return int(row[c.W_PENDING]), int(row[c.W_ACTIVE])
