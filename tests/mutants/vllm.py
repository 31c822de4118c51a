"""vLLM servers: tickets, loads and holds of the connector, and the gateway in front of them."""

from tests.mutants.mutant import ByTests, Mutant


def _by(file: str, *tests: str) -> ByTests:
    return ByTests(tuple(f"tests/{file}.py::{test}" for test in tests))


def _by_handoff(*tests: str) -> ByTests:
    return _by("integrations/vllm/test_handoff", *tests)


def _by_gateway(*tests: str) -> ByTests:
    return _by("runtime/vllm/test_vllm_gateway", *tests)


def _by_faults(*tests: str) -> ByTests:
    return _by("runtime/vllm/test_vllm_faults", *tests)


_TICKETS = (
    Mutant(
        name="ticket-of-anybody",
        file="integrations/vllm/ticket.py",
        line="if not verifier.verify(signed.issuer, _DOMAIN + signed.ticket, signed.signature):",
        planted="if False:",
        why="A client writes a ticket of its own, and with it the addresses that servers talk to.",
        killer=_by(
            "integrations/vllm/test_ticket",
            "test_a_ticket_of_another_key_is_refused",
            "test_no_byte_of_a_ticket_can_be_changed",
        ),
    ),
    Mutant(
        name="nonces-come-again",
        file="integrations/vllm/ticket.py",
        line="self._capabilities = CapabilityIssuer(signer, first_nonce=time.time_ns() // 1000)",
        planted="self._capabilities = CapabilityIssuer(signer, first_nonce=1)",
        why="The tickets of a gateway that was started again count as used.",
        killer=_by(
            "integrations/vllm/test_ticket", "test_a_gateway_that_restarts_mints_no_nonce_again"
        ),
    ),
    Mutant(
        name="ticket-names-an-older-life",
        file="integrations/vllm/ticket.py",
        line="if (worker_id, epoch) != (member.worker_id, member.epoch):",
        planted="if worker_id != member.worker_id:",
        why="A ticket is minted for a life that has ended, and its handoff fails at the servers.",
        killer=_by(
            "integrations/vllm/test_ticket",
            "test_a_pair_that_cannot_serve_is_refused_with_what_to_do",
        ),
    ),
    Mutant(
        name="decline-of-anybody",
        file="integrations/vllm/node.py",
        line="if genuine and unreserved(signed.fence) == unreserved(fence):",
        planted="if unreserved(signed.fence) == unreserved(fence):",
        why="Whoever guesses a name lets go of blocks that a destination is about to read.",
        killer=_by_handoff("test_a_forged_right_moves_nothing_and_lets_nothing_go"),
    ),
    Mutant(
        name="right-not-spent-at-the-source",
        file="integrations/vllm/claims.py",
        line='return f"capability_{denial}" if denial is not None else ""',
        planted='return ""',
        why="The source hands out blocks under a right that does not cover them.",
        killer=_by_handoff("test_a_source_judges_the_right_for_itself"),
    ),
)

_LOADS = (
    Mutant(
        name="vllm-load-of-an-older-generation",
        file="integrations/vllm/load_side.py",
        line="if context.fences.is_fenced(fence.request_id, fence.generation):",
        planted="if False:",
        why="A ticket that was used begins a second load.",
        killer=_by_handoff("test_a_ticket_serves_once"),
    ),
    Mutant(
        name="vllm-load-of-another-life",
        file="integrations/vllm/load_side.py",
        line="if destination_of(fence) != context.key:",
        planted="if destination_of(fence)[0] != context.key[0]:",
        why="A ticket for a life that has ended fills blocks of the next one.",
        killer=_by_handoff("test_a_ticket_of_another_life_moves_nothing"),
    ),
    Mutant(
        name="vllm-published-unchecked",
        file="integrations/vllm/load_side.py",
        line="defect = transfer.defect()",
        planted='defect = ""',
        why="Blocks are handed to vLLM whose bytes are not those that the source has summed.",
        killer=_by_handoff("test_a_flipped_bit_is_refused_and_the_source_freed"),
    ),
    Mutant(
        name="vllm-published-without-manifest",
        file="integrations/vllm/load_side.py",
        line="if not live or transfer.manifest is None or not transfer.all_visible:",
        planted="if not live or transfer.manifest is None:",
        why="The manifest is there before the last chunks, and the load fails for nothing.",
        killer=_by_handoff("test_a_prompt_is_held_until_its_load_is_published"),
    ),
    Mutant(
        name="vllm-pushed-blocks-given-back-at-once",
        file="integrations/vllm/load_aborts.py",
        line="if transfer.grant.direction is Direction.PULL:",
        planted="if True:",
        why="vLLM gives blocks to another request while the source still writes into them.",
        killer=_by_handoff(
            "test_an_aborted_request_is_quiet_before_vllm_hears_of_it[push]",
            "test_a_partitioned_source_stops_by_itself_before_quarantine_ends",
        ),
    ),
    Mutant(
        name="vllm-strange-sources-are-heard",
        file="integrations/vllm/node.py",
        line=(
            "if sender != source_of(message.fence) or destination_of(message.fence) "
            "!= self._context.key:"
        ),
        planted="if destination_of(message.fence) != self._context.key:",
        why="A member that has nothing to do with a handoff ends it, or seals it.",
        killer=_by_handoff("test_strangers_change_nothing_at_a_destination"),
    ),
    Mutant(
        name="vllm-loaded-twice",
        file="integrations/vllm/scheduler_side.py",
        line="if not leg.is_decode or leg.state is not LegState.WAITING:",
        planted="if not leg.is_decode:",
        why="A request that was preempted after its load asks for bytes that are gone by now.",
        killer=_by(
            "integrations/vllm/test_scheduler_side",
            "test_what_was_loaded_once_is_never_loaded_again",
        ),
    ),
    Mutant(
        name="vllm-samples-load-each",
        file="integrations/vllm/scheduler_side.py",
        line="if state is LegState.MOVING:",
        planted="if False:",
        why="Every sample of a prompt spends the same ticket, and all but the first fail.",
        killer=_by(
            "integrations/vllm/test_scheduler_side", "test_samples_of_one_prompt_load_it_once"
        ),
    ),
)

_HOLDS = (
    Mutant(
        name="vllm-freed-before-the-acknowledgement",
        file="integrations/vllm/hold_side.py",
        line="seal = Seal(fence=transfer.fence, manifest=transfer.manifest)",
        planted=(
            "seal = Seal(fence=transfer.fence, manifest=transfer.manifest); "
            "context.answer(HoldEnded(vllm_id=held.vllm_id))"
        ),
        why="vLLM reuses blocks that the destination is still reading.",
        killer=_by_handoff("test_a_prompt_is_held_until_its_load_is_published"),
    ),
    Mutant(
        name="vllm-aborted-hold-is-free-at-once",
        file="integrations/vllm/hold_side.py",
        line="self._context.cancel(held.transfer.fence)",
        planted="self._forget(held)",
        why="A copy that runs reads blocks which vLLM has given to somebody else.",
        killer=_by_handoff("test_an_aborted_hold_is_quiet_before_vllm_hears_of_it"),
    ),
    Mutant(
        name="vllm-hold-without-end",
        file="integrations/vllm/hold_side.py",
        line="if now_us >= held.expires_us and not is_over:",
        planted="if False:",
        why="A destination that never comes keeps a prompt's blocks for ever.",
        killer=_by_handoff("test_a_hold_that_nobody_claims_expires"),
    ),
    Mutant(
        name="vllm-hold-outlives-its-destination",
        file="integrations/vllm/hold_side.py",
        line="if destination_of(held.ticket.fence) == key:",
        planted="if False:",
        why="Blocks stay for a process that is dead until a lease runs out.",
        killer=_by_handoff("test_a_dead_destination_frees_the_source"),
    ),
    Mutant(
        name="vllm-hands-over-what-is-gone",
        file="integrations/vllm/scheduler_side.py",
        line="if len(block_ids) * self._block_size < len(view.token_ids):",
        planted="if False:",
        why="A prompt that was preempted in its last step is handed over without its blocks.",
        killer=_by(
            "integrations/vllm/test_scheduler_side",
            "test_what_is_not_complete_is_never_handed_over",
        ),
    ),
)

_GATEWAY = (
    Mutant(
        name="vllm-prefill-gets-everything",
        file="runtime/vllm/bodies.py",
        line="**{name: value for name, value in body.items() if name in PROMPT_FIELDS},",
        planted="**body,",
        why="Fields of the answer reach the prefill leg, which refuses or obeys them.",
        killer=_by_gateway("test_a_stream_passes_through_both_legs"),
    ),
    Mutant(
        name="vllm-clients-steer",
        file="runtime/vllm/bodies.py",
        line='if name not in STEERING_FIELDS and not name.startswith(("remote_", "do_remote_"))',
        planted='if not name.startswith(("remote_", "do_remote_"))',
        why="A client takes another request's name, or points a server at an address.",
        killer=_by_gateway("test_a_client_steers_nothing"),
    ),
    Mutant(
        name="vllm-outputs-share-a-seed",
        file="runtime/vllm/bodies.py",
        line='one["seed"] = (seed + copy) % SEED_RANGE  # as vLLM numbers the seeds of n outputs',
        planted='one["seed"] = seed',
        why="Several outputs of one seed are the same text.",
        killer=_by_gateway("test_each_of_n_outputs_has_a_handle_of_its_own"),
    ),
    Mutant(
        name="vllm-done-is-missing",
        file="runtime/vllm/answer.py",
        line="await self._exchange.end(last + DONE)",
        planted="await self._exchange.end(last)",
        why="A whole answer looks as if it had broken off.",
        killer=_by_gateway("test_a_stream_passes_through_both_legs"),
    ),
    Mutant(
        name="vllm-done-comes-twice",
        file="runtime/vllm/answer.py",
        line="if event == DONE_EVENT:",
        planted="if False:",
        why="Each server's end goes to the client before the answer's own.",
        killer=_by_gateway("test_a_stream_ends_once"),
    ),
    Mutant(
        name="vllm-cut-stream-is-whole",
        file="runtime/vllm/call.py",
        line="if not done:",
        planted="if False:",
        why="An answer that lost its end is said to be whole.",
        killer=_by_faults("test_a_stream_that_ends_without_its_last_word_is_not_whole"),
    ),
    Mutant(
        name="vllm-begins-again-in-the-middle",
        file="runtime/vllm/call.py",
        line="if sent:",
        planted="if False:",
        why="A stream that breaks goes on with a second answer's beginning.",
        killer=_by_faults("test_a_stream_that_breaks_ends_with_an_error_and_never_with_done"),
    ),
    Mutant(
        name="vllm-asks-the-dead-again",
        file="runtime/vllm/call.py",
        line="self._gone.add(failed.server)",
        planted="pass",
        why="Every attempt goes to the decode server that has just died, and the client gets 502.",
        killer=_by_faults(
            "test_a_decode_server_that_breaks_off_leaves_the_prompt_to_whoever_lives"
        ),
    ),
    Mutant(
        name="vllm-handle-kept",
        file="runtime/vllm/backend.py",
        line="told = await self.connector.give_back(self.client, decode, params)",
        planted="told = True",
        why="Blocks that nobody will read wait for a lease.",
        killer=_by_faults("test_a_client_that_leaves_before_decode_has_read_gives_the_handle_back"),
    ),
    Mutant(
        name="vllm-tenants-share",
        file="runtime/vllm/generation.py",
        line='body["cache_salt"] = tenant + str(body.get("cache_salt") or "")',
        planted="pass",
        why="One tenant sees by its first token what another one has asked.",
        killer=_by_gateway("test_tenants_never_share_a_prefix"),
    ),
    Mutant(
        name="vllm-received-counts-as-cached",
        file="runtime/vllm/usage.py",
        line='return {**usage, "prompt_tokens_details": {**details, "cached_tokens": reused}}',
        planted="return usage",
        why="A client is told that its whole prompt was cached, and pays for what it says.",
        killer=_by_gateway("test_usage_tells_what_the_prefill_server_reused_and_only_to_who_asks"),
    ),
    Mutant(
        name="vllm-next-life-is-the-same",
        file="runtime/vllm/servers.py",
        line="self.epoch += is_new",
        planted="self.epoch += not self.epoch",
        why="A pair that was proven with a dead life counts as proven, and so do its tickets.",
        killer=_by_faults("test_servers_die_and_come_back"),
    ),
)

_DRAINING = (
    Mutant(
        name="last-worker-drained",
        file="nodes/draining.py",
        line="if Role.MIXED in rest or {Role.PREFILL, Role.DECODE} <= rest:",
        planted="if rest:",
        why="The last worker of a role goes, and nothing can be served.",
        killer=_by("nodes/test_draining", "test_the_last_of_its_role_stays"),
    ),
    Mutant(
        name="drained-workers-count",
        file="nodes/draining.py",
        line=(
            "rest = {other.info.role for other in router.fleet if other is not view "
            "and not other.draining}"
        ),
        planted="rest = {other.info.role for other in router.fleet if other is not view}",
        why="Both workers of a role go, each because of the other.",
        killer=_by("nodes/test_draining", "test_one_of_two_may_go_and_then_the_other_may_not"),
    ),
    Mutant(
        name="drained-source-goes-early",
        file="nodes/draining.py",
        line="(record.fence.source_id, record.fence.source_epoch),",
        planted="",
        why="A source is ended while a destination still reads from it.",
        killer=_by(
            "nodes/test_draining",
            "test_both_sides_of_an_open_handoff_have_something_to_do_until_it_is_over",
        ),
    ),
)

_MANIFEST = (
    Mutant(
        name="vllm-later-life-is-held-to-nothing",
        file="runtime/vllm/manifest_keeper.py",
        line="if differences:",
        planted="if False:",
        why="A server comes back with another release, and the manifest is not true any more.",
        killer=_by(
            "runtime/vllm/test_vllm_manifest",
            "test_a_later_life_that_differs_is_not_admitted_and_the_one_from_before_is",
        ),
    ),
    Mutant(
        name="vllm-start-is-held-to-nothing",
        file="runtime/vllm/serve.py",
        line="check_manifest(manifest, record.manifest)",
        planted="pass",
        why="`serve --manifest` reads its file, and starts anything.",
        killer=_by(
            "runtime/vllm/test_vllm_manifest",
            "test_a_start_that_differs_from_its_file_is_refused_by_the_fields",
        ),
    ),
)

MUTANTS = (*_TICKETS, *_LOADS, *_HOLDS, *_GATEWAY, *_DRAINING, *_MANIFEST)
