"""What a trace says about a request: when it arrives, how long it is, and what it shares."""

import msgspec


class WorkloadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a workload; `arrival_us` counts from the start of the run.

    `prompt` is its text where the trace carries one; otherwise a host makes a prompt of
    `num_prompt_tokens` tokens, in which requests with equal leading `hash_ids` share a prefix.
    """

    arrival_us: int
    num_prompt_tokens: int
    num_output_tokens: int
    hash_ids: tuple[int, ...] = ()
    session_id: str = ""
    prompt: str = ""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in order of arrival, and where they come from."""

    name: str
    source: str
    """File or generator with its parameters, so that a result can name its input."""
    requests: tuple[WorkloadRequest, ...]
    tokens_per_hash: int = 0
    """Prompt tokens that one hash id stands for; 0 without hash ids."""
    notes: tuple[str, ...] = ()
    """What was left out, sorted, cut or assumed on the way from the source to these requests."""

    @property
    def duration_us(self) -> int:
        """From the start of the run to the last arrival."""
        return self.requests[-1].arrival_us if self.requests else 0
