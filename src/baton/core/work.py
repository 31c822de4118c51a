"""One engine step as a plain value: what to run, and what came out (specification 0x03A)."""

import msgspec

from baton.core.request import SamplingParams, TopLogprob


class WorkItem(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one sequence in one step.

    `token_ids` occupy absolute positions `start .. start+n-1`; their K/V go to the slots that
    `block_table` names. Rows before `num_prompt_tokens` are prefill rows, the others decode rows,
    wherever they are computed: that is what makes a recompute bit-equal to the first computation.
    With `sample`, one token is drawn from the last row's logits (position `start+n`).
    """

    request_id: str
    generation: int
    token_ids: tuple[int, ...]
    start: int
    num_prompt_tokens: int
    block_table: tuple[int, ...]
    sample: bool
    sampling: SamplingParams
    verify: bool = False

    @property
    def end(self) -> int:
        """Absolute position after the last row."""
        return self.start + len(self.token_ids)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One iteration of the engine; `report_layers` asks for an event as each layer's K/V lands."""

    batch_id: int
    items: tuple[WorkItem, ...]
    report_layers: bool = False

    @property
    def num_rows(self) -> int:
        """Query rows in this step."""
        return sum(len(item.token_ids) for item in self.items)


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """The token drawn for one item."""

    request_id: str
    generation: int
    token_id: int
    logprob: float | None = None
    top_logprobs: tuple[TopLogprob, ...] = ()
    logits_digest: str = ""


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a step produced; a failed step carries `error` and no tokens."""

    batch_id: int
    sampled: tuple[Sampled, ...] = ()
    duration_us: int = 0
    error: str = ""
