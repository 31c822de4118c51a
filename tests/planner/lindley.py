"""A single server with given service times, by Lindley's recursion: an oracle for searches."""

import numpy as np

from baton.sim.fast.result import End, FastResult, Workers


class Lindley:
    """Stands where the fast host stands: requests wait in line, then take their service time.

    The first token comes when service ends; each further one after `gap_us`.
    """

    def __init__(self, service_us, gap_us=0.0):
        self.service_us = service_us
        self.gap_us = gap_us
        self.num_calls = 0

    def __call__(self, deployment, workload, *, stop_us=np.inf):
        self.num_calls += 1
        num = len(workload)
        service = self.service_us(workload.num_prompt)
        end_us = np.empty(num)
        free_us = 0.0
        for i in range(num):
            free_us = max(free_us, workload.arrival_us[i]) + service[i]
            end_us[i] = free_us
        last_us = end_us + self.gap_us * (workload.num_output - 1)
        none = np.zeros(num, np.int64)
        worker = np.zeros(1, np.int64)
        return FastResult(
            arrival_us=workload.arrival_us,
            num_prompt=workload.num_prompt,
            num_output=workload.num_output,
            end=np.full(num, int(End.COMPLETED), np.int8),
            first_us=end_us,
            last_us=last_us,
            prefill_start_us=end_us - service,
            prefill_end_us=end_us,
            moved_us=np.full(num, np.nan),
            num_cached=none,
            num_moved=none,
            num_preempted=none,
            prefill_worker=none,
            decode_worker=none - 1,
            workers=Workers(
                names=("one",),
                busy_us=np.array([service.sum()]),
                num_steps=worker,
                num_extrapolated=worker,
                num_rows=worker,
                peak_tokens=worker,
            ),
            gap_edges_us=np.array([0.0, 1.0]),
            gap_counts=worker,
            duration_us=float(last_us.max()),
            num_events=num,
        )
