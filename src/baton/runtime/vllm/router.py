"""Where an output runs: the route policies of `policy/routing` over the servers' loads."""

import uuid
from collections.abc import Set

import msgspec

from baton.config import BatonConfig
from baton.core.ids import Mode, Role
from baton.errors import RequestRejected
from baton.policy.routing.decision import Decision, Rejection
from baton.policy.routing.load import WorkerLoad, least_loaded
from baton.policy.routing.policies import ROUTE_POLICIES
from baton.policy.routing.question import RouteQuestion
from baton.runtime.vllm.prefixes import Prefixes
from baton.runtime.vllm.servers import Server, ServerTable

RETRY_NOT_READY_S = 2.0
_NOBODY: Set[str] = frozenset()


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a route is chosen by."""

    num_tokens: int
    """Of the prompt; an estimate where it was not tokenized."""
    num_output_tokens: int = 0
    token_ids: tuple[int, ...] = ()
    """Empty where nothing asked for them."""
    cache_salt: str = ""
    colocated: str = ""
    """Why it may not be handed over."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A prefill and a decode server, or one server for both and why."""

    prefill: Server | None
    decode: Server
    mode: Mode
    reason: str
    reuse_tokens: int = 0
    """Prompt tokens that the prefill server is believed to hold."""


class VllmRouter:
    """Chooses servers; keeps no request."""

    def __init__(self, config: BatonConfig, servers: ServerTable, prefixes: Prefixes) -> None:
        self._config = config
        self._servers = servers
        self._prefixes = prefixes
        self._policy = ROUTE_POLICIES[config.router.policy]

    @property
    def wants_tokens(self) -> bool:
        """Routes depend on the prompt's tokens, not only on how many there are."""
        return self._policy.uses_cache or self._config.vllm.min_split_tokens > 0

    def check_admission(self, num_tokens: int) -> None:
        """Raise RequestRejected 429 while the queues are full."""
        knobs = self._config.router
        pending = sum(server.pending_tokens for server in self._servers)
        waiting = sum(server.load.waiting for server in self._servers)
        if waiting < knobs.max_waiting_requests and (
            not pending or pending + num_tokens <= knobs.max_pending_tokens
        ):
            return
        raise RequestRejected(
            f"{waiting} requests wait and {pending} prompt tokens are pending; the limits are "
            f"router.max_waiting_requests {knobs.max_waiting_requests} and "
            f"router.max_pending_tokens {knobs.max_pending_tokens}",
            status=429,
            code="queue_full",
            retry_after_s=self.queue_s(),
        )

    def queue_s(self) -> float:
        """How long the shortest prefill queue takes, by its measured rate."""
        loads = [s.work_load() for s in self._servers.up(Role.PREFILL, Role.MIXED)]
        return max(1.0, min((load.pending_us for load in loads), default=0.0) / 1e6)

    def choose(
        self, ask: Ask, avoid_prefill: Set[str] = _NOBODY, avoid_decode: Set[str] = _NOBODY
    ) -> Route:
        """A route for one attempt. Raises RequestRejected when no server can take it."""
        if ask.colocated:
            return self.colocated(ask.colocated, avoid_decode)
        depths = self._prefixes.depths(ask.token_ids, ask.cache_salt) if ask.token_ids else {}
        loads = self._candidates(avoid_prefill, avoid_decode)
        if not any(load.role is not Role.DECODE for load in loads):
            return self.colocated(self._why_no_pair(), avoid_decode)
        size = self._prefixes.block_size
        question = RouteQuestion(
            draw=uuid.uuid4().hex,
            num_tokens=ask.num_tokens,
            num_blocks=1,
            num_output_tokens=ask.num_output_tokens,
            block_size=size,
            depths=depths,
            memory_depths=depths,
            ttft_slo_us=self._config.router.ttft_slo_ms * 1000,
            tpot_slo_us=self._config.router.tpot_slo_ms * 1000,
            avoid_prefill=frozenset(avoid_prefill),
            balancing_threshold=self._config.router.balancing_threshold,
        )
        outcome = self._policy.choose(question, loads)
        if isinstance(outcome, Rejection):
            raise RequestRejected(
                f"refused before any compute: {outcome.reason}",
                status=429,
                code=outcome.code,
                retry_after_s=max(1.0, outcome.wait_us / 1e6),
            )
        if outcome is None:
            return self.colocated(self._why_no_pair(), avoid_decode)
        return self._route(outcome, ask, depths)

    def _route(self, decision: Decision, ask: Ask, depths: dict[str, int]) -> Route:
        prefill = self._servers[decision.pair.prefill]
        decode = self._servers[decision.pair.decode]
        if prefill is decode:
            return Route(prefill=None, decode=decode, mode=Mode.COLOCATED, reason="mixed")
        held = depths.get(decode.server_id, 0) * self._prefixes.block_size
        if ask.token_ids and ask.num_tokens - held < self._config.vllm.min_split_tokens:
            # What a handoff would save is less than what it costs: the decode server computes it.
            return Route(prefill=None, decode=decode, mode=Mode.COLOCATED, reason="short")
        why = self._servers.failure_of(prefill, decode)
        if self._config.vllm.probe and why != "":
            reason = "pair_unproven" if why is None else "pair_failed"
            return Route(prefill=None, decode=decode, mode=Mode.COLOCATED, reason=reason)
        return Route(
            prefill=prefill,
            decode=decode,
            mode=Mode.DISAGGREGATED,
            reason=decision.reason,
            reuse_tokens=decision.prefill_reuse_tokens,
        )

    def _candidates(self, avoid_prefill: Set[str], avoid_decode: Set[str]) -> list[WorkerLoad]:
        decodes = self._servers.up(Role.DECODE)
        preferred = [s for s in decodes if s.server_id not in avoid_decode] or decodes
        mixed = [s for s in self._servers.up(Role.MIXED) if s.server_id not in avoid_decode]
        prefills = [s for s in self._servers.up(Role.PREFILL) if s.server_id not in avoid_prefill]
        chosen = prefills + preferred + mixed
        if self._config.vllm.probe and prefills and preferred:
            chosen = self._proven_of(prefills, preferred) + mixed
        return [server.work_load() for server in chosen]

    def _proven_of(self, prefills: list[Server], decodes: list[Server]) -> list[Server]:
        """Servers of pairs that are known to hand over, or all while none is."""
        proven = [(p, d) for p in prefills for d in decodes if self._servers.failure_of(p, d) == ""]
        if not proven:
            return prefills + decodes
        names = {server.server_id for pair in proven for server in pair}
        return [server for server in prefills + decodes if server.server_id in names]

    def colocated(self, reason: str, avoid: Set[str] = _NOBODY, gone: Set[str] = _NOBODY) -> Route:
        """The whole request at one server: a mixed or decode one, or any while none is up.

        `gone` are servers that broke a connection of this request: another role's is better than
        those. Raises RequestRejected 503 when nobody answers.
        """
        ranked = self._servers.up(Role.MIXED, Role.DECODE), self._servers.up(Role.PREFILL)
        alive = [[s for s in some if s.server_id not in gone] for some in ranked]
        servers = next((some for some in (*alive, *ranked) if some), [])
        servers = [s for s in servers if s.server_id not in avoid] or servers
        if not servers:
            raise RequestRejected(
                f"not ready: {self._servers.unready()}; try again later",
                status=503,
                code="not_ready",
                retry_after_s=RETRY_NOT_READY_S,
            )
        load = least_loaded([server.work_load() for server in servers])
        return Route(
            prefill=None,
            decode=self._servers[load.worker_id],
            mode=Mode.COLOCATED,
            reason=reason,
        )

    def _why_no_pair(self) -> str:
        if not self._servers.up(Role.PREFILL):
            return "no_prefill_server"
        return "no_decode_server" if not self._servers.up(Role.DECODE) else "no_pair"
