"""History that moves on the router's own order: fetched, returned, replicated (0x09D, 0x09H)."""

from collections.abc import Mapping

from baton.core.cache import Milestone
from baton.core.snapshot import Rates
from baton.nodes.continuations import Continuations
from baton.nodes.copies import Copies
from baton.nodes.fleet import WorkerView
from baton.nodes.history_copy import Motive
from baton.nodes.record import RequestRecord
from baton.nodes.router_context import RouterContext
from baton.policy.replication import HotPrefixes, replication
from baton.policy.return_path import ReturnQuestion, return_price
from baton.protocol.request import RequestInput


class Histories:
    """Turns decisions about history into copies; nothing here holds a request up for long."""

    def __init__(self, context: RouterContext, copies: Copies) -> None:
        self._context = context
        self._copies = copies
        self._continuations = Continuations()
        self.hot = HotPrefixes()
        self._returns = context.cache.milestone is Milestone.BIDIRECTIONAL

    # -- fetch ---------------------------------------------------------------------------------

    def fetch(self, record: RequestRecord, owner_id: str, prefill_id: str, num_blocks: int) -> bool:
        """Copy a prefix to where its prompt will run. False: the attempt starts without it.

        The request waits in FETCHING for the copy's end, whichever it is, and is then routed
        again: an inserted prefix is the worker's own by then.
        """
        context = self._context
        owner, target = context.fleet.get(owner_id), context.fleet.get(prefill_id)
        if owner is None or target is None or owner is target:
            return False
        request_id = record.request.request_id
        tokens = self._leading(record, num_blocks)
        copy = self._copies.start(
            Motive.FETCH, tokens, record.request, owner, target, waiter=request_id
        )
        if copy is None:
            return False
        record.machine.feed(RequestInput.FETCH)
        target.prefill_tokens[request_id] = record.num_tokens - len(tokens)
        context.trace("fetching", record, owner=owner_id, to=prefill_id, num_tokens=len(tokens))
        return True

    def _leading(self, record: RequestRecord, num_blocks: int) -> tuple[int, ...]:
        layout = self._context.fleet.source_layout
        assert layout is not None
        return record.request.prompt_token_ids[: num_blocks * layout.block_size]

    def on_submitted(self, record: RequestRecord) -> None:
        """Does this prompt go on from a history, and does it begin with a hot prefix?"""
        context = self._context
        if not context.cache.announce or context.cache.milestone is Milestone.NONE:
            return
        names = context.block_hashes(record)
        if self._returns:
            self._continuations.arrived(names)
        match = context.holdings.match(names)
        if match.best is not None:
            self._hit(record, names, match.depths, match.best[1])

    # -- replicate -----------------------------------------------------------------------------

    def _hit(
        self,
        record: RequestRecord,
        names: tuple[bytes, ...],
        depths: Mapping[str, int],
        num_blocks: int,
    ) -> None:
        """Somebody holds so many leading blocks of this prompt: is that prefix hot by now?"""
        context, last = self._context, names[num_blocks - 1]
        hits = self.hot.hit(last, context.now_us, num_blocks)
        wanted = replication(
            hits,
            num_blocks,
            depths,
            context.fleet.routable(context.now_us) if context.cache.replicate_hits else (),
            replicate_hits=context.cache.replicate_hits,
            max_replicas=context.cache.max_replicas,
        )
        if wanted is None:
            return
        owner, target = context.fleet.get(wanted.owner), context.fleet.get(wanted.target)
        assert owner is not None and target is not None, "routable workers live"
        tokens = self._leading(record, wanted.num_blocks)
        if self._copies.start(Motive.REPLICATE, tokens, record.request, owner, target):
            self.hot.forget(last)

    # -- return --------------------------------------------------------------------------------

    def on_finished(self, record: RequestRecord) -> None:
        """The decode worker has named the rows of the whole text: are they worth sending back?

        The last token was never fed back, so its row does not exist.
        """
        fence = record.fence
        if not self._returns or fence is None or fence.colocated or not record.outputs:
            return
        context = self._context
        tokens = (*record.request.prompt_token_ids, *record.output_token_ids[:-1])
        names = context.names(record.request, tokens, context.block_hashes(record))
        source = context.fleet.get(fence.destination_id, fence.destination_epoch)
        target = context.fleet.get(fence.source_id, fence.source_epoch)
        if not names or source is None or target is None:
            return
        if source.info.model.layout != target.info.model.layout:
            return  # history is copied between blocks of one size only
        self._continuations.finished(names[-1])
        self._return(record, tokens, names, source, target)

    def _return(
        self,
        record: RequestRecord,
        tokens: tuple[int, ...],
        names: tuple[bytes, ...],
        source: WorkerView,
        target: WorkerView,
    ) -> None:
        context, layout = self._context, target.info.model.layout
        held = context.holdings.match(names).memory_depths.get(target.info.worker_id, 0)
        link = _link(source, target)
        price = return_price(
            ReturnQuestion(
                num_tokens=len(names) * layout.block_size,
                num_held_tokens=held * layout.block_size,
                bytes_per_token=layout.bytes_per_token,
                continuation=self._continuations.share,
                prefill=_rates(target),
                bytes_per_us=link.transfer_bytes_per_us,
                overhead_us=link.transfer_overhead_us,
            )
        )
        context.trace(
            "return_priced", record,
            saved_us=round(price.saved_us), cost_us=round(price.cost_us), pays=int(price.pays),
        )  # fmt: skip
        context.counters["returns_paid" if price.pays else "returns_declined"] += 1
        if price.pays:
            whole = tokens[: len(names) * layout.block_size]
            self._copies.start(Motive.RETURN, whole, record.request, source, target)


def _rates(view: WorkerView) -> Rates:
    return view.snapshot.rates if view.snapshot else Rates()


def _link(source: WorkerView, target: WorkerView) -> Rates:
    """The source's own measurement of the link, or the other end's where it has none."""
    return _rates(source) if _rates(source).transfer_bytes_per_us else _rates(target)
