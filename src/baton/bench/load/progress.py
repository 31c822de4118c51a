"""What a run has done so far."""

from collections import Counter, deque

from baton.goodput.record import Outcome, RequestRecord

NUM_RECENT = 50


class Progress:
    """Counts of a run that is going on; the one that is told of it must not change it."""

    def __init__(self, num_total: int) -> None:
        self.num_total = num_total
        self.num_sent = 0
        self.outcomes: Counter[Outcome] = Counter()
        self.recent_ttft_us: deque[int] = deque(maxlen=NUM_RECENT)

    @property
    def num_ended(self) -> int:
        """Requests that are over, whatever way."""
        return self.outcomes.total()

    @property
    def num_in_flight(self) -> int:
        """Requests sent and not over."""
        return self.num_sent - self.num_ended

    def end(self, record: RequestRecord) -> None:
        """A request is over."""
        self.outcomes[record.outcome] += 1
        if record.ttft_us is not None:
            self.recent_ttft_us.append(record.ttft_us)
