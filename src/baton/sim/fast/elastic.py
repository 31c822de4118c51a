"""A simulation whose workers come and go: opened, closed to new requests, and drained.

Every worker that may ever run is in the deployment; one that is not open is as if it were dead. The
caller advances the simulation slice by slice and acts between slices.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from baton.errors import ConfigError
from baton.sim.fast import columns as c
from baton.sim.fast.deployment import Deployment
from baton.sim.fast.run import Simulation
from baton.sim.fast.stretches import num_over
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
        workers = self._state.workers
        away = np.setdiff1d(np.arange(len(workers)), opened)
        workers[away, c.W_IS_UP], workers[away, c.W_NUM_DOWN] = 0, 1

    def open(self, worker: int, now_us: float) -> None:
        """An empty worker takes requests from now on; those that wait for a route ask again."""
        self._state.workers[worker, c.W_IS_CLOSED] = 0
        self._happens(c.E_UP, worker, now_us)

    def close(self, worker: int) -> None:
        """Nothing new is routed there; what it has goes on."""
        self._state.workers[worker, c.W_IS_CLOSED] = 1

    def end(self, worker: int, now_us: float) -> None:
        """A drained worker is gone, and with it all that it kept."""
        self._happens(c.E_DOWN, worker, now_us)

    def _happens(self, kind: int, worker: int, now_us: float) -> None:
        """The next thing that happens: nothing in the heap is earlier than now."""
        state = self._state
        size = int(state.counts[c.C_HEAP]) + 1
        state.counts[c.C_HEAP] = size
        state.counts[c.C_SEQUENCE] += 1
        place = size
        while place > 1 and now_us < state.event_us[place // 2]:
            state.event_us[place] = state.event_us[place // 2]
            state.events[place] = state.events[place // 2]
            place //= 2
        state.event_us[place] = now_us
        state.events[place] = (state.counts[c.C_SEQUENCE], kind, worker, 0)

    def is_drained(self, worker: int) -> bool:
        """No request needs it any more."""
        numbers = self._state.requests
        phase = numbers[:, c.R_PHASE]
        is_open = (phase != c.AWAY) & (phase != c.WAITING) & (phase != c.ENDED)
        computes = is_open & (phase != c.DECODING) & (numbers[:, c.R_PREFILL] == worker)
        holds = (numbers[:, c.R_PREFILL] == worker) & (numbers[:, c.R_SOURCE_BLOCKS] > 0) & is_open
        decodes = is_open & (numbers[:, c.R_DECODE] == worker)
        copies = (phase == c.FETCHING) & (
            (numbers[:, c.R_FETCH] == worker + 1) | (numbers[:, c.R_FETCH_OWNER] == worker)
        )
        return not bool((computes | holds | decodes | copies).any())

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
        """Tokens of each answer so far, those of steps that are over by now included."""
        numbers, lanes = self._state.requests, self._state.lanes
        produced: Ints = numbers[:, c.R_PRODUCED].copy()
        decoding = np.flatnonzero(numbers[:, c.R_PHASE] == c.DECODING)
        lane = numbers[decoding, c.R_LANE]
        over = np.array([num_over(self._state, one) for one in range(len(lanes))], np.int64)
        counter = lanes[lane, c.L_COUNTER]
        is_in_step = (lanes[lane, c.L_IS_BUSY] > 0) & (lanes[lane, c.L_NUM_RUN] > 0)
        is_in_step &= numbers[decoding, c.R_JOINED] < counter
        counter = counter - is_in_step + over[lane]
        produced[decoding] = counter + numbers[decoding, c.R_BASE] - numbers[decoding, c.R_PROMPT]
        return produced

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
