"""What a load would do to a pool of another size: the prediction behind every replan (0x08E).

Prefill is a queue with several servers: Erlang's probability of waiting, an exponential tail, and
the Allen-Cunneen factor for service times that vary. Decode is a batch whose size follows from
Little's law, and a step that grows with it.
"""

import math

import msgspec

from baton.policy.replan_signals import WorkerRates


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What arrives, in requests and in work a microsecond."""

    requests_per_us: float
    prefill_load: float
    """Prefill workers that it would keep busy."""

    @property
    def prompt_us(self) -> float:
        """Mean work of one prompt."""
        return self.prefill_load / self.requests_per_us if self.requests_per_us else 0.0


def wait_probability(load: float, workers: int) -> float:
    """Erlang C: that all workers are busy when a request comes."""
    if load >= workers:
        return 1.0
    # The recursion of Erlang B is stable where factorials are not.
    blocked = 1.0
    for number in range(1, workers + 1):
        blocked = load * blocked / (number + load * blocked)
    share = load / workers
    return blocked / (1 - share + share * blocked)


def queue_tail_us(demand: Demand, cv2: float, workers: int, quantile: float) -> float:
    """The wait that this share of the requests does not exceed; infinite without a steady state."""
    if demand.prefill_load <= 0:
        return 0.0
    if workers < 1 or demand.prefill_load >= workers:
        return math.inf
    waits = wait_probability(demand.prefill_load, workers)
    if waits <= 1 - quantile:
        return 0.0
    mean_us = demand.prompt_us * (1 + cv2) / 2 / (workers - demand.prefill_load)
    return mean_us * math.log(waits / (1 - quantile))


def ttft_tail_us(
    demand: Demand, cv2: float, tail_us: float, workers: int, quantile: float, rates: WorkerRates
) -> float:
    """Wait, work and handoff; the sum of two quantiles is above the quantile of the sum."""
    return queue_tail_us(demand, cv2, workers, quantile) + tail_us + rates.handoff_us


def decode_batch(demand: Demand, mean_output: float, workers: int, rates: WorkerRates) -> float:
    """Sequences of one worker in the steady state; infinite where there is none."""
    if workers < 1:
        return math.inf
    steps = demand.requests_per_us * mean_output / workers
    free = 1 - steps * rates.decode_sequence_us
    return steps * rates.decode_step_us / free if free > 0 else math.inf


def tpot_tail_us(
    demand: Demand,
    mean_output: float,
    mean_context: float,
    active: int,
    workers: int,
    spread: float,
    rates: WorkerRates,
) -> float:
    """A step of a batch that is `spread` standard deviations above its mean, or as it is now.

    The number of sequences varies like a Poisson number. Infinite where memory or the bound on
    sequences would be exceeded: a queue would form.
    """
    batch = decode_batch(demand, mean_output, workers, rates)
    if math.isinf(batch):
        return math.inf
    batch = max(batch + spread * math.sqrt(batch), active / workers)
    if batch > rates.decode_max_requests or batch * mean_context > rates.decode_tokens:
        return math.inf
    return rates.decode_step_us + rates.decode_sequence_us * batch
