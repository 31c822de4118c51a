"""What the client of one replayed request sees, as a record."""

import msgspec

from baton.core.delivery import Delivery, Failed, Finished, Started, Tokens
from baton.core.request import Request, SamplingParams
from baton.goodput.record import Outcome, RequestRecord
from baton.sim.replay.prompts import Prompts
from baton.sim.replay.setup import ReplaySetup
from baton.workload.request import Workload


class ReplayClient:
    """Sends one request and notes every chunk; it waits for nothing and never gives up.

    `scheduled_us` is the trace's arrival, or what a closed loop makes of it.
    """

    def __init__(
        self, workload: Workload, index: int, start_us: int, setup: ReplaySetup, prompts: Prompts
    ) -> None:
        self.index = index
        self._wanted = workload.requests[index]
        self._start_us, self._setup = start_us, setup
        self._prompts = prompts
        self.scheduled_us = self._wanted.arrival_us
        self.num_cached_tokens = 0
        """Prompt rows that were not computed for it."""
        self.request_id = f"r{index}"
        self._token_times_us: list[int] = []
        self._num_output_tokens = 0
        self._mode = ""
        self._end: tuple[int, Outcome, str] | None = None

    @property
    def send_at_us(self) -> int:
        """When the request leaves the client."""
        return self._start_us + self.scheduled_us

    def request(self) -> Request | None:
        """The request as the gateway makes it, or None when the context cannot hold it."""
        wanted, setup = self._wanted, self._setup
        room = setup.max_model_len - wanted.num_prompt_tokens
        if wanted.num_prompt_tokens < 1 or room < max(1, wanted.num_output_tokens):
            return None
        return Request(
            request_id=self.request_id,
            prompt_token_ids=self._prompts(self.index),
            sampling=SamplingParams(
                max_tokens=max(1, wanted.num_output_tokens), temperature=0.0, ignore_eos=True
            ),
        )

    def refuse(self, now_us: int) -> None:
        """The gateway answers 400 before the router hears of it."""
        wanted = self._wanted
        text = (
            f"context_length_exceeded: {wanted.num_prompt_tokens} and {wanted.num_output_tokens} "
            f"tokens in a context of {self._setup.max_model_len}"
        )
        self._end = (now_us, Outcome.FAILED, text)

    def on_delivery(self, delivery: Delivery, at_us: int) -> None:
        """Something reaches the client now."""
        match delivery:
            case Started(mode=mode, cached_tokens=cached_tokens):
                self._mode = str(mode)
                self.num_cached_tokens = cached_tokens
            case Tokens(tokens=tokens):
                self._token_times_us.append(at_us - self._start_us)
                self._num_output_tokens += len(tokens)
            case Finished(usage=usage):
                self._num_output_tokens = usage.completion_tokens
                self._end = (at_us, Outcome.COMPLETED, "")
            case Failed(code=code, message=message):
                self._end = (at_us, Outcome.FAILED, f"{code}: {message}")

    @property
    def is_over(self) -> bool:
        """The request has its one end."""
        return self._end is not None

    def record(self) -> RequestRecord:
        """Times from the start of the run."""
        assert self._end is not None
        end_us, outcome, error = self._end
        return RequestRecord(
            request_id=self.request_id,
            scheduled_us=self.scheduled_us,
            sent_us=self.scheduled_us,
            token_times_us=tuple(self._token_times_us),
            end_us=end_us - self._start_us,
            num_prompt_tokens=self._wanted.num_prompt_tokens,
            num_output_tokens=self._num_output_tokens,
            outcome=outcome,
            error=error,
            mode=self._mode,
        )


class ReplayCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay did, beside its records."""

    num_steps: dict[str, int]
    """Engine steps by worker."""
    busy_us: dict[str, int]
    """Time in which each engine computed."""
    moved_nbytes: int
    """K/V bytes between workers."""
    moved_nbytes_for: dict[str, int]
    """The same by what moved them: a handoff to decode, or a copy of history."""
    decisions: dict[str, int]
    """Routes by the reason that the router gave, retries included."""
    num_cached_tokens: tuple[int, ...]
    """Prompt rows that were not computed, by request in the workload's order."""
    duration_us: int
    """Virtual time from the start of the workload to its last end."""
    num_actions: int
    """Events of the timeline: what a replay's own time grows with."""
    counters: dict[str, int]
    """Named outcomes of the router and of every worker."""
