"""The router orders copies of history between workers and waits for each one's end (0x09B)."""

from collections.abc import Callable, Iterator

import msgspec

from baton.core.ids import Fence, Purpose, Schedule
from baton.core.manifest import Grant
from baton.core.messages import (
    Aborted,
    Accepted,
    Denied,
    Message,
    Prefill,
    Published,
    Reserve,
    Reserved,
)
from baton.core.request import Request, SamplingParams
from baton.nodes.fleet import WorkerView
from baton.nodes.grants import grant_answer_defect
from baton.nodes.history_copy import HistoryCopy, Motive
from baton.nodes.router_context import RouterContext
from baton.protocol.copy import HistoryCopyInput, HistoryCopyState

_HELD_ALREADY = "already_held"


class Copies:
    """Each copy is tried once, within a deadline; `on_end` hears of the one end of each.

    A copy is the transaction of a handoff whose source computes nothing and whose publication
    names blocks instead of admitting a sequence. It never decides whether a request is answered:
    where it fails, the rows are computed.
    """

    def __init__(self, context: RouterContext, on_end: Callable[[HistoryCopy], None]) -> None:
        self._context = context
        self._on_end = on_end
        self._open: dict[str, HistoryCopy] = {}
        self._num_started = 0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[HistoryCopy]:
        return iter(self._open.values())

    def __contains__(self, copy_id: str) -> bool:
        return copy_id in self._open

    @property
    def has_room(self) -> bool:
        """Another copy may start now."""
        return len(self._open) < self._context.cache.max_copies

    def start(
        self,
        motive: Motive,
        token_ids: tuple[int, ...],
        like: Request,
        source: WorkerView,
        destination: WorkerView,
        waiter: str = "",
    ) -> HistoryCopy | None:
        """Copy the history of `token_ids` (whole blocks) under the tenant and salt of `like`.

        None, and nothing happens, where there is no room or the same copy is under way.
        """
        context = self._context
        if not self.has_room or not token_ids or self._is_under_way(token_ids, like, destination):
            context.counters["copies_refused"] += 1
            return None
        self._num_started += 1
        copy = self._new(motive, token_ids, like, source, destination, waiter)
        self._open[copy.copy_id] = copy
        context.counters[f"copies_{motive}"] += 1
        context.trace_copy(
            "copy_started", copy.copy_id,
            motive=motive, source=copy.fence.source_id, destination=copy.fence.destination_id,
            num_tokens=copy.num_tokens, waiter=waiter,
        )  # fmt: skip
        copy.unanswered = copy.asked = Reserve(
            fence=copy.fence,
            request=copy.request,
            output_token_ids=(),
            direction=context.transfer.direction,
            schedule=Schedule.REQUEST,
            route_epoch=copy.route_epoch,
            purpose=Purpose.INSERT,
        )
        self._repeat(copy)
        return copy

    def _new(
        self,
        motive: Motive,
        token_ids: tuple[int, ...],
        like: Request,
        source: WorkerView,
        destination: WorkerView,
        waiter: str,
    ) -> HistoryCopy:
        context = self._context
        copy_id = f"copy/{context.rights.issuer}/{self._num_started}"
        request = Request(
            request_id=copy_id,
            prompt_token_ids=token_ids,
            sampling=SamplingParams(max_tokens=1),
            tenant_id=like.tenant_id,
            cache_salt=like.cache_salt,
        )
        fence = Fence(
            tenant_id=like.tenant_id,
            request_id=copy_id,
            generation=1,
            attempt=1,
            source_id=source.info.worker_id,
            source_epoch=source.info.epoch,
            destination_id=destination.info.worker_id,
            destination_epoch=destination.info.epoch,
        )
        return HistoryCopy(
            request=request,
            fence=fence,
            motive=motive,
            route_epoch=context.rights.route_epoch,
            started_us=context.now_us,
            deadline_us=context.now_us + context.cache.copy_timeout_ms * 1000,
            waiter=waiter,
        )

    def _is_under_way(self, tokens: tuple[int, ...], like: Request, to: WorkerView) -> bool:
        wanted = (to.info.worker_id, like.tenant_id, like.cache_salt, tokens)
        return any(
            (c.fence.destination_id, c.request.tenant_id, c.request.cache_salt) == wanted[:3]
            and c.request.prompt_token_ids == tokens
            for c in self
        )

    def _repeat(self, copy: HistoryCopy) -> None:
        match copy.unanswered:
            case Reserve(fence=fence):
                self._context.send(fence.destination_id, copy.unanswered)
            case Prefill(fence=fence):
                self._context.send(fence.source_id, copy.unanswered)

    # -- answers -------------------------------------------------------------------------------

    def on_message(self, fence: Fence, message: Message) -> None:
        """A party of a copy has answered; what is not of its present life is stale."""
        copy = self._open[fence.request_id]
        expected = copy.fence
        if expected.reservation_id == 0:
            expected = msgspec.structs.replace(expected, reservation_id=fence.reservation_id)
        if fence != expected:
            self._context.counters["stale_messages"] += 1
            return
        match message:
            case Reserved(grant=grant):
                self._on_reserved(copy, grant)
            case Accepted():
                if isinstance(copy.unanswered, Prefill):
                    copy.unanswered = None
            case Published():
                self._end(copy, HistoryCopyInput.INSERT, "")
            case Denied(reason=reason):
                self._on_denied(copy, reason)
            case Aborted(reason=reason):
                self._end(copy, HistoryCopyInput.GIVE_UP, reason)
            case _:
                self._context.counters["unexpected_messages"] += 1

    def _on_reserved(self, copy: HistoryCopy, grant: Grant) -> None:
        context = self._context
        if copy.state is not HistoryCopyState.RESERVING:
            context.counters["duplicate_messages"] += 1
            return
        asked = copy.asked
        assert asked is not None
        destination = context.fleet.get(grant.fence.destination_id)
        source = context.fleet.get(grant.fence.source_id, grant.fence.source_epoch)
        assert destination is not None, "a lost worker ends its copies"
        defect = grant_answer_defect(grant, asked, copy.num_tokens, destination.info)
        if defect:
            context.counters["bad_grants"] += 1
        elif source is None or context.rights.is_revoked(grant.fence, grant.route_epoch):
            defect = "source_lost" if source is None else "routes_revoked"
        if defect or source is None:
            copy.fence = grant.fence
            self._give_up(copy, defect)
            return
        copy.machine.feed(HistoryCopyInput.GRANT)
        copy.fence = grant.fence
        copy.unanswered = Prefill(
            fence=grant.fence,
            request=copy.request,
            output_token_ids=(),
            grant=grant,
            capability=context.rights.mint(grant, source.info, context.now_us),
        )
        self._repeat(copy)

    def _on_denied(self, copy: HistoryCopy, reason: str) -> None:
        if reason == _HELD_ALREADY and copy.state is HistoryCopyState.RESERVING:
            self._end(copy, HistoryCopyInput.INSERT, reason)
            return
        self._context.counters["copies_denied"] += 1
        self._give_up(copy, reason)

    # -- ends ----------------------------------------------------------------------------------

    def _give_up(self, copy: HistoryCopy, reason: str) -> None:
        """Both legs stop; what they still hold they give back on their own clocks."""
        self._context.cancel_attempt(copy.fence, reason)
        self._end(copy, HistoryCopyInput.GIVE_UP, reason)

    def _end(self, copy: HistoryCopy, given: HistoryCopyInput, reason: str) -> None:
        context = self._context
        copy.machine.feed(given)
        del self._open[copy.copy_id]
        outcome = "inserted" if given is HistoryCopyInput.INSERT else "given_up"
        context.counters[f"copies_{outcome}"] += 1
        context.trace_copy(
            "copy_ended", copy.copy_id,
            motive=copy.motive, state=copy.state, reason=reason,
            duration_us=context.now_us - copy.started_us,
        )  # fmt: skip
        self._on_end(copy)

    def give_up_all(self, reason: str) -> None:
        """No copy that is under way may be inserted."""
        for copy in list(self):
            self._give_up(copy, reason)

    def on_worker_lost(self, worker_id: str, epoch: int) -> None:
        """Neither a dead source nor a dead destination ends a copy by itself."""
        for copy in list(self):
            if copy.touches(worker_id, epoch):
                self._give_up(copy, "worker_lost")

    def on_tick(self) -> None:
        """Give up what is overdue, and repeat what nobody has answered."""
        for copy in list(self):
            if self._context.now_us >= copy.deadline_us:
                self._give_up(copy, "copy_timeout")
            elif copy.unanswered is None and copy.asked is not None:
                # Its end may have been lost: a destination that has inserted says so again.
                self._context.send(copy.asked.fence.destination_id, copy.asked)
            else:
                self._repeat(copy)
