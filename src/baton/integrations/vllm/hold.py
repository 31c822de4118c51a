"""One prompt at its source: what vLLM keeps for it, and the transfer once it is claimed."""

from baton.core.request import Token
from baton.integrations.vllm.messages import Claim
from baton.integrations.vllm.ticket import Ticket
from baton.protocol.source import SourceTransfer


class HeldPrompt:
    """From the first streamed step, or from the end of the prompt, until nobody reads it."""

    def __init__(self, vllm_id: str, ticket: Ticket, token_ids: tuple[int, ...]) -> None:
        self.vllm_id = vllm_id
        self.ticket = ticket
        self.token_ids = token_ids
        self.block_ids: tuple[int, ...] = ()
        self.num_ready = 0
        """Rows that are final in every layer."""
        self.step_end = 0
        """Rows that are final in a layer as soon as the running step has passed it; or 0."""
        self.first_token: Token | None = None
        self.num_cached_tokens = 0
        self.is_awaited = False
        """Whether vLLM keeps the blocks until it hears of the end."""
        self.claim: Claim | None = None
        self.transfer: SourceTransfer | None = None
        self.expires_us = 0
        self.deadline_us = 0

    @property
    def transfer_id(self) -> str:
        """Names it on both sides."""
        return self.ticket.transfer_id

    @property
    def is_complete(self) -> bool:
        """Whether the whole prompt is computed."""
        return self.first_token is not None
