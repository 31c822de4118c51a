"""Routes: whose turn it is, what is asked of the policy for it, and who is refused (0x08E)."""

from collections.abc import Sequence

from baton.core.ids import Role, Schedule
from baton.core.request import SLO
from baton.nodes.record import RequestRecord
from baton.nodes.router_context import RouterContext
from baton.policy.admission import AdmissionQuestion, InFlight, admission_refusal
from baton.policy.routing.decision import Decision, Outcome, Rejection
from baton.policy.routing.load import WorkerLoad, can_hold
from baton.policy.routing.policies import ROUTE_POLICIES
from baton.policy.routing.question import RouteQuestion
from baton.policy.routing.recompute import recompute_worker
from baton.protocol.request import RequestState

_NOTHING: dict[str, int] = {}
_COMING = (RequestState.FETCHING, RequestState.RESERVING, RequestState.PREFILLING)


class Routes:
    """Chooses for one request at a time; starts nothing."""

    def __init__(self, context: RouterContext) -> None:
        self._context = context
        self._can_fetch = context.cache.max_copies > 0
        self._policy = ROUTE_POLICIES[context.config.policy]

    # -- whose turn ----------------------------------------------------------------------------

    def next_waiting(self) -> RequestRecord:
        """The oldest request; under fairness that of the tenant that was served least."""
        context = self._context
        if context.config.fairness == "fcfs":
            return context.records[context.waiting[0]]
        records = [context.records[key] for key in context.waiting]
        tenant = context.tenants.next_tenant(record.request.tenant_id for record in records)
        return next(record for record in records if record.request.tenant_id == tenant)

    def charge(self, record: RequestRecord) -> None:
        """Its prompt is about to be served; another attempt at it costs its tenant nothing."""
        if not record.is_charged:
            record.is_charged = True
            self._context.tenants.charge(
                record.request.tenant_id, prompt_tokens=record.request.num_prompt_tokens
            )

    # -- where to ------------------------------------------------------------------------------

    def choose(self, record: RequestRecord) -> Outcome:
        """A route, a refusal before any compute, or None: it waits for room."""
        context = self._context
        loads: Sequence[WorkerLoad] = context.fleet.routable(context.now_us)
        if record.recompute:
            pair = recompute_worker(loads, context.num_blocks(record))
            return Decision(pair=pair, reason="recompute") if pair else None
        if record.fetched_to:
            loads = _with_source(loads, record.fetched_to, context.num_blocks(record))
        question = self._question(record)
        outcome = self._policy.choose(question, loads)
        if isinstance(outcome, Rejection) or context.config.admission == "none" or record.outputs:
            return outcome
        return self._refused(question, outcome, loads) or outcome

    def _question(self, record: RequestRecord) -> RouteQuestion:
        context, layout = self._context, self._context.fleet.source_layout
        assert layout is not None, "somebody is routable"
        depths = memory_depths = _NOTHING
        if self._policy.uses_cache:
            match = context.holdings.match(context.block_hashes(record))
            depths, memory_depths = match.depths, match.memory_depths
        slo, link = self._slo(record), context.fleet.link(context.now_us)
        schedule = context.transfer.schedule
        return RouteQuestion(
            draw=f"{record.request.request_id}/{record.generation}",
            num_tokens=record.num_tokens,
            num_blocks=context.num_blocks(record),
            num_output_tokens=context.lifetimes.output_tokens(record.request.sampling.max_tokens),
            block_size=layout.block_size,
            bytes_per_token=layout.bytes_per_token,
            num_layers=layout.num_layers,
            schedule=Schedule.LAYER if schedule == "auto" else Schedule(schedule),
            depths=depths,
            memory_depths=memory_depths,
            bytes_per_us=link.transfer_bytes_per_us,
            overhead_us=link.transfer_overhead_us,
            ttft_slo_us=slo.ttft_us,
            tpot_slo_us=slo.tpot_us,
            avoid_prefill=record.avoid_prefill,
            balancing_threshold=context.config.balancing_threshold,
            may_fetch=self._can_fetch and not record.has_fetched,
        )

    def _slo(self, record: RequestRecord) -> SLO:
        """What is left of the request's own targets, or of the deployment's.

        Who has had a token is not refused any more, so it has no targets.
        """
        if record.outputs:
            return SLO()
        context, asked = self._context, record.request.slo
        ttft_us = asked.ttft_us or context.config.ttft_slo_ms * 1000
        waited_us = context.now_us - record.submitted_us
        return SLO(
            ttft_us=max(1, ttft_us - waited_us) if ttft_us else 0,
            tpot_us=asked.tpot_us or context.config.tpot_slo_ms * 1000,
        )

    # -- admission -----------------------------------------------------------------------------

    def _refused(
        self, question: RouteQuestion, decision: Decision | None, loads: Sequence[WorkerLoad]
    ) -> Rejection | None:
        context = self._context
        return admission_refusal(
            AdmissionQuestion(
                now_us=context.now_us,
                predicts=context.config.admission == "predicted",
                ttft_slo_us=question.ttft_slo_us,
                tpot_slo_us=question.tpot_slo_us,
                decode_us=context.lifetimes.decode_us,
            ),
            decision,
            [w for w in loads if w.role is not Role.PREFILL],
            self._in_flight(),
        )

    def _in_flight(self) -> list[InFlight]:
        """Whoever decodes, or will once its prefill ends."""
        requests = []
        for record in self._context.records.values():
            if record.state is RequestState.DECODING:
                requests.append(InFlight(decodes_from_us=record.published_us, is_decoding=True))
            elif record.state in _COMING:
                due_us = max(record.prefill_end_us, self._context.now_us)
                requests.append(InFlight(decodes_from_us=due_us, is_decoding=False))
        return requests


def _with_source(
    loads: Sequence[WorkerLoad], worker_id: str, num_blocks: int
) -> Sequence[WorkerLoad]:
    """The same fleet with one source, for which a prefix was copied; all if it cannot serve now."""
    source = next((w for w in loads if w.worker_id == worker_id), None)
    if source is None or (source.role is Role.MIXED and not can_hold(source, num_blocks)):
        return loads
    return [w for w in loads if w.role is Role.DECODE or w is source]
