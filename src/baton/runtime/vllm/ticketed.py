"""Baton's own connector from the gateway's side: it mints tickets, and gives up unread ones.

A ticket names both lives. Each server's connector says on its control port which life it is, so a
restarted server is asked again before a ticket names it.
"""

import asyncio
import time
from collections.abc import Sequence

from msgspec.structs import replace

from baton.core.ids import Direction, Fence
from baton.core.vllm_settings import VllmSettings
from baton.errors import BatonError, ConfigError
from baton.integrations.vllm.info import ConnectorInfo
from baton.integrations.vllm.keys import ISSUER_FILE, MEMBER_FILE, load_issuer, load_member
from baton.integrations.vllm.messages import Status
from baton.integrations.vllm.status import ask_handoffs, ask_status, give_up
from baton.integrations.vllm.ticket import TICKET_KEY, TicketIssuer, read_ticket
from baton.runtime.clock import now_us
from baton.runtime.vllm.connector import ROUTE_EPOCH, HandoffWord, LegIds, Params, WantedWord
from baton.runtime.vllm.handoff_word import Told, fold_word, told_of
from baton.runtime.vllm.http_client import HttpClient
from baton.runtime.vllm.servers import Server

STATUS_MS = 5_000
GIVE_UP_MS = 2_000


class BatonConnector:
    """Mints a ticket for each handoff between two lives that this gateway has met."""

    def __init__(self, settings: VllmSettings, deadline_ms: int) -> None:
        """Raises ConfigError when the keys of the deployment cannot be read."""
        folder = settings.key_folder
        if not folder:
            raise ConfigError(
                "vllm.key_folder is empty; make keys with "
                "`python -m baton.integrations.vllm.keys FOLDER` and name that folder"
            )
        self._member = load_member(f"{folder}/{MEMBER_FILE}")
        self._issuer = TicketIssuer(load_issuer(f"{folder}/{ISSUER_FILE}").signer())
        self._direction = settings.direction
        self._deadline_ms = deadline_ms
        self._statuses: dict[str, Status] = {}

    @property
    def is_together(self) -> bool:
        """A source that pushes writes into blocks that the destination has to have by then."""
        return self._direction is Direction.PUSH

    async def meet(self, server: Server) -> None:
        """Learn which life of a connector this server has. Raises BatonError where none answers."""
        endpoint = server.address.control
        if not endpoint:
            raise BatonError(f"no control endpoint is named; write {server.url},control=tcp://...")
        status = await asyncio.to_thread(ask_status, endpoint, self._member, STATUS_MS)
        if status is None:
            raise BatonError(f"its connector does not answer at {endpoint}")
        self._statuses[server.server_id] = status

    def info(self, server: Server) -> ConnectorInfo | None:
        """Of the life that was met last; None for a server whose connector was not asked."""
        known = self._statuses.get(server.server_id)
        return known.info if known is not None else None

    async def status(self, server: Server) -> Status | None:
        """What the ranks of a server hold now; None where one does not answer."""
        known = self._statuses.get(server.server_id)
        endpoints = known.info.member.endpoints if known else (server.address.control,)
        asked = [
            asyncio.to_thread(ask_status, endpoint, self._member, STATUS_MS)
            for endpoint in endpoints
        ]
        found = [status for status in await asyncio.gather(*asked) if status is not None]
        return most_held(found) if len(found) == len(endpoints) else None

    def prefill_params(self, ids: LegIds, prefill: Server, decode: Server) -> Params:
        """A fresh ticket. Raises BatonError for a pair that cannot serve."""
        source = self._statuses[prefill.server_id].info
        destination = self._statuses[decode.server_id].info
        fence = Fence(
            tenant_id=ids.tenant_id,
            request_id=ids.request_id,
            generation=ids.attempt,
            attempt=ids.attempt,
            source_id=source.member.worker_id,
            source_epoch=source.member.epoch,
            destination_id=destination.member.worker_id,
            destination_epoch=destination.member.epoch,
        )
        ticket = self._issuer.mint(
            fence,
            source,
            destination,
            direction=self._direction,
            route_epoch=ROUTE_EPOCH,
            now_us=time.time_ns() // 1000,
            deadline_ms=self._deadline_ms,
        )
        return {"do_remote_decode": True, "do_remote_prefill": False, TICKET_KEY: ticket}

    def decode_params(self, asked: Params, answered: object) -> Params | None:
        """The same ticket, once the source says that it holds the prompt under it."""
        if not isinstance(answered, dict) or not answered.get("do_remote_prefill"):
            return None
        return self.early_params(asked)

    def early_params(self, asked: Params) -> Params:
        """Of a decode leg that goes out together with its prefill leg."""
        return {
            "do_remote_decode": False,
            "do_remote_prefill": True,
            TICKET_KEY: asked[TICKET_KEY],
        }

    async def give_back(self, client: HttpClient, decode: Server, params: Params) -> bool:
        """The source lets the blocks go; True when it has said so."""
        ticket = str(params[TICKET_KEY])
        return await asyncio.to_thread(give_up, ticket, self._member, GIVE_UP_MS)

    @property
    def is_telling(self) -> bool:
        """A destination remembers its last loads."""
        return True

    async def words(self, wanted: Sequence[WantedWord], timeout_ms: int) -> list[HandoffWord]:
        """Ask every rank of the destinations once, for all handoffs."""
        verifier = self._member.verifier()
        texts = [str(one.params[TICKET_KEY]) for one in wanted]
        # A signature each: beside the loop, where answers go through.
        tickets = await asyncio.to_thread(lambda: [read_ticket(text, verifier) for text in texts])
        transfers: dict[str, list[str]] = {}
        for ticket in tickets:
            for endpoint in ticket.destination.endpoints:
                transfers.setdefault(endpoint, []).append(ticket.transfer_id)
        asked = [
            asyncio.to_thread(self._ask, endpoint, tuple(ids), timeout_ms)
            for endpoint, ids in transfers.items()
        ]
        told = dict(zip(transfers, await asyncio.gather(*asked), strict=True))
        return [
            fold_word(
                ticket.fence, [told[e] for e in ticket.destination.endpoints], one.answered_us
            )
            for ticket, one in zip(tickets, wanted, strict=True)
        ]

    def _ask(self, endpoint: str, transfer_ids: tuple[str, ...], timeout_ms: int) -> Told | None:
        """One rank; None where it does not answer in time, or speaks another version."""
        asked_us = now_us()
        try:
            answer = ask_handoffs(endpoint, self._member, transfer_ids, timeout_ms)
        except BatonError:
            return None
        return told_of(answer, asked_us, now_us()) if answer is not None else None


_HELD = (
    "held_blocks",
    "loading_blocks",
    "open_holds",
    "open_loads",
    "waiting_claims",
    "open_tickets",
)


def most_held(ranks: list[Status]) -> Status:
    """The first rank's answer with the most that any rank holds: all ranks hold the same blocks."""
    most = {name: max(getattr(status, name) for status in ranks) for name in _HELD}
    return replace(ranks[0], **most)


def leaks_of(status: Status) -> str:
    """What a connector at rest should not have; "" when it holds nothing."""
    held = {name: getattr(status, name) for name in _HELD}
    return ", ".join(f"{name} {count}" for name, count in held.items() if count)
