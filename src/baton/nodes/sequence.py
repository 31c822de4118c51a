"""A sequence inside one worker: its tokens, its blocks and how far it is computed."""

from baton.core.ids import Fence
from baton.core.request import Request, Token, Usage
from baton.core.work import WorkItem


class Sequence:
    """Rows `0 .. num_computed-1` of `tokens` are in `block_table`; the rest is to be computed.

    `outputs` are the generated tokens in order of index, those of earlier attempts included.
    """

    def __init__(
        self,
        *,
        request: Request,
        fence: Fence,
        outputs: list[Token],
        hashes: list[bytes],
    ) -> None:
        self.request = request
        self.fence = fence
        self.outputs = outputs
        self.tokens = [*request.prompt_token_ids, *(token.token_id for token in outputs)]
        self.hashes = hashes
        self.block_table: list[int] = []
        self.num_computed = 0
        self.num_cached_tokens = 0
        self.in_batch = False
        self.arrival = 0
        """Its place in the order of arrival at this worker's engine, from 1."""
        self.arrived_us = 0
        self.last_rows_us = 0
        self.num_iterations = 0
        self.num_passed_over = 0
        """Steps since its last rows that ran without it."""
        self.num_preemptions = 0
        self.is_loading = False
        """It waits for blocks of its prefix to come up from a lower tier."""
        self.num_loads = 0
        self.computes_nothing = False
        """It is history on its way to another worker."""
        self.streams_layers = False
        """Each layer's rows are sent as soon as a step has them, so the engine has to say when."""
        self.ended = ""
        """Why the sequence ended; set while a running batch may still write its blocks."""

    @property
    def key(self) -> str:
        """Unique within a worker: request and generation."""
        return self.fence.transfer_id

    @property
    def num_reusable(self) -> int:
        """Rows that may be history: a prompt computes its last row, to draw from it."""
        return len(self.tokens) - (not self.computes_nothing)

    @property
    def num_pending(self) -> int:
        """Rows that are not computed yet."""
        return len(self.tokens) - self.num_computed

    @property
    def num_generated(self) -> int:
        """Tokens generated so far over all attempts."""
        return len(self.outputs)

    def append(self, token: Token) -> None:
        """Take the next generated token."""
        assert token.index == len(self.outputs), (token.index, len(self.outputs))
        self.outputs.append(token)
        self.tokens.append(token.token_id)

    def work(self, num_rows: int) -> WorkItem:
        """The next `num_rows` rows as a work item; the last row draws a token."""
        end = self.num_computed + num_rows
        assert 0 < num_rows <= self.num_pending
        return WorkItem(
            request_id=self.request.request_id,
            generation=self.fence.generation,
            token_ids=tuple(self.tokens[self.num_computed : end]),
            start=self.num_computed,
            num_prompt_tokens=self.request.num_prompt_tokens,
            block_table=tuple(self.block_table),
            sample=end == len(self.tokens),
            sampling=self.request.sampling,
            verify=self.request.verify,
        )

    def usage(self) -> Usage:
        """Token accounting at the end."""
        return Usage(
            prompt_tokens=self.request.num_prompt_tokens,
            completion_tokens=self.num_generated,
            cached_tokens=self.num_cached_tokens,
        )
