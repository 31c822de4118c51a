"""What is said beside the tokens, who may say it, and what ends under which fence and when."""

from tests.mutants.mutant import ByTests, Mutant, Vopr

_WORKER = "tests/nodes/test_worker_ends.py"
_ROUTER = "tests/nodes/test_router_ends.py"
_EXACT = ("streams-are-exact",)

_EVIDENCE = (
    Mutant(
        name="first-logprob-dropped",
        file="nodes/source_side.py",
        line="logprob=sampled.logprob,",
        planted="logprob=None,",
        why="The first token of a handed-over prompt comes without its log probability.",
        killer=Vopr(_EXACT, seeds=(4,)),
    ),
    Mutant(
        name="first-alternatives-dropped",
        file="nodes/source_side.py",
        line="top_logprobs=sampled.top_logprobs,",
        planted="top_logprobs=(),",
        why="The first token of a handed-over prompt comes without its alternatives.",
        killer=Vopr(_EXACT, seeds=(4,)),
    ),
    Mutant(
        name="alternatives-dropped",
        file="nodes/decode_side.py",
        line="top_logprobs=sampled.top_logprobs,",
        planted="top_logprobs=(),",
        why="Decoded tokens come without their alternatives.",
        killer=Vopr(_EXACT, seeds=(1,)),
    ),
    Mutant(
        name="local-logits-digest-dropped",
        file="nodes/local_side.py",
        line="logits_digest=sampled.logits_digest,",
        planted='logits_digest="",',
        why="A colocated request cannot be compared by its first logits.",
        killer=Vopr(_EXACT, seeds=(1,)),
    ),
    Mutant(
        name="digest-of-rows-not-computed",
        file="nodes/decode_side.py",
        line="rows = min(sequence.num_computed, len(sequence.tokens) - 1)",
        planted="rows = len(sequence.tokens) - 1",
        why="A sequence that was recomputing is digested with rows that nobody wrote.",
        killer=ByTests(
            (
                f"{_WORKER}::test_a_sequence_cancelled_while_it_recomputes_is_digested_as_far"
                "_as_it_is_computed",
            )
        ),
    ),
    Mutant(
        name="reuse-not-recorded",
        file="nodes/streams.py",
        line="record.cached_tokens = message.cached_tokens",
        planted="pass",
        why="Who is cancelled is billed for rows that were reused.",
        killer=ByTests(
            (
                f"{_ROUTER}::test_a_request_that_the_router_ends_itself_reports_the_rows_that"
                "_were_reused",
                f"{_ROUTER}::test_a_cancelled_request_whose_worker_died_reports_the_rows_that"
                "_were_reused",
            )
        ),
    ),
)

_PARTIES = (
    Mutant(
        name="anybody-answers",
        file="nodes/router.py",
        line="if fence is not None and not _is_party(view.info, fence, message):",
        planted="if False:",
        why="A live worker publishes and ends what another one serves.",
        killer=Vopr(_EXACT, seeds=(8,)),
    ),
    Mutant(
        name="anybody-streams",
        file="nodes/streams.py",
        line="owner == (sender.worker_id, sender.epoch)",
        planted="True",
        why="A live worker puts tokens into the stream of another one.",
        killer=Vopr(_EXACT, seeds=(7,)),
    ),
    Mutant(
        name="published-twice-is-stale",
        file="protocol/directory.py",
        line="if current is not None and current.transfer_id == entry.transfer_id:",
        planted="if False:",
        why="A repeated publication is taken for a superseded one, and its transfer aborts.",
        killer=Vopr(("publication-is-once",), seeds=(0,)),
    ),
    Mutant(
        name="ended-is-published-again",
        file="protocol/directory.py",
        line="if self.is_fenced(entry.request_id, entry.generation):",
        planted="if False:",
        why="Blocks that were freed at the end of a request become readable again.",
        killer=Vopr(("publication-is-once",), seeds=(0,)),
    ),
    Mutant(
        name="hanging-engine-not-noticed",
        file="nodes/fleet.py",
        line="elif batch_us > self._batch_timeout_us:",
        planted="elif False:",
        why="A worker whose engine never returns holds its requests for ever.",
        killer=Vopr(("liveness",), seeds=(11,)),
    ),
)

_FENCES = (
    Mutant(
        name="revoked-grant-is-used",
        file="nodes/attempts.py",
        line="if source is None or context.rights.is_revoked(grant.fence, grant.route_epoch):",
        planted="if source is None:",
        why="A right is minted for a route that was taken back.",
        killer=ByTests(
            (
                f"{_ROUTER}::test_a_grant_that_comes_after_the_revocation_of_its_route_starts"
                "_no_prefill",
            )
        ),
    ),
    Mutant(
        name="lease-renewed-by-another-fence",
        file="nodes/incoming_table.py",
        line="if incoming is not None and incoming.fence == fence:",
        planted="if incoming is not None:",
        why="A word about an older reservation keeps this one alive.",
        killer=ByTests((f"{_WORKER}::test_a_lease_is_renewed_under_its_own_fence_only[False]",)),
    ),
    Mutant(
        name="death-of-any-life-of-a-destination",
        file="nodes/source_aborts.py",
        line="if (fence.destination_id, fence.destination_epoch) == (worker_id, epoch):",
        planted="if fence.destination_id == worker_id:",
        why="Late word of an older death ends a handoff to the new life.",
        killer=ByTests(
            (f"{_WORKER}::test_only_the_death_of_the_right_life_of_a_destination_ends_a_job[1]",)
        ),
    ),
    Mutant(
        name="death-of-any-life-of-a-source",
        file="nodes/destination_aborts.py",
        line="if (fence.source_id, fence.source_epoch) == (worker_id, epoch):",
        planted="if fence.source_id == worker_id:",
        why="Blocks are freed while the new life of their source still writes them.",
        killer=ByTests(
            (f"{_WORKER}::test_only_the_death_of_the_right_life_of_a_source_ends_a_reservation[1]",)
        ),
    ),
    Mutant(
        name="source-cancels-any-reservation",
        file="nodes/source_aborts.py",
        line="if job is not None and fence.reservation_id not in (0, job.fence.reservation_id):",
        planted="if False:",
        why="A cancel of what was superseded ends what replaced it.",
        killer=ByTests((f"{_WORKER}::test_a_cancel_of_another_reservation_leaves_the_job_alone",)),
    ),
    Mutant(
        name="destination-cancels-any-reservation",
        file="nodes/destination_aborts.py",
        line="if fence.reservation_id in (0, incoming.fence.reservation_id):",
        planted="if True:",
        why="A cancel of what was superseded ends what replaced it.",
        killer=ByTests(
            (f"{_WORKER}::test_a_cancel_of_another_reservation_leaves_the_reservation_alone",)
        ),
    ),
)

_MARGINS = (
    Mutant(
        name="lost-source-not-avoided",
        file="nodes/router.py",
        line="record.avoid_prefill |= {worker_id}",
        planted="pass",
        why="The next attempt goes to the worker that has just died.",
        killer=ByTests(
            (
                f"{_ROUTER}::test_a_source_that_died_is_avoided_by_the_next_attempt_though_it"
                "_lives_again",
            )
        ),
    ),
    Mutant(
        name="cancel-waits-for-nobody",
        file="nodes/router.py",
        line="record.attempt_deadline_us = context.now_us + 2 * context.transfer.lease_ms * 1000",
        planted="record.attempt_deadline_us = context.now_us",
        why="A cancelled request ends before its workers could say what it has used.",
        killer=ByTests(
            (f"{_ROUTER}::test_a_cancel_waits_for_its_workers_two_leases_and_no_longer",)
        ),
    ),
    Mutant(
        name="cancel-waits-for-the-attempt",
        file="nodes/router.py",
        line="record.attempt_deadline_us = context.now_us + 2 * context.transfer.lease_ms * 1000",
        planted="pass",
        why="A cancelled request whose workers are silent stays as long as its attempt may.",
        killer=ByTests(
            (f"{_ROUTER}::test_a_cancel_waits_for_its_workers_two_leases_and_no_longer",)
        ),
    ),
    Mutant(
        name="no-new-wait-after-a-start",
        file="nodes/attempts.py",
        line="if record.started:  # its first token is out: the wait for the next route "
        "counts anew",
        planted="if False:",
        why="A long answer whose worker fails ends for want of time to its first token.",
        killer=ByTests((f"{_ROUTER}::test_a_started_request_waits_anew_when_its_worker_fails",)),
    ),
    Mutant(
        name="quarantine-counts-as-room",
        file="nodes/fleet.py",
        line="quarantined = self.snapshot.quarantined_blocks if self.snapshot else 0",
        planted="quarantined = 0",
        why="Requests are sent to a worker whose blocks may still be written by others.",
        killer=ByTests((f"{_ROUTER}::test_blocks_in_quarantine_are_no_room[10]",)),
    ),
    Mutant(
        name="growth-for-tokens-that-are-out",
        file="nodes/reservation.py",
        line="left = max(1, request.sampling.max_tokens - len(message.output_token_ids))",
        planted="left = max(1, request.sampling.max_tokens)",
        why="A replayed request reserves room for the tokens that it has already.",
        killer=ByTests((f"{_WORKER}::test_growth_is_reserved_for_the_tokens_that_are_left_only",)),
    ),
    Mutant(
        name="expiry-without-skew",
        file="protocol/nonces.py",
        line="return bound_us is not None and bound_us - self._skew_us > issuer_time_us",
        planted="return bound_us is not None and bound_us > issuer_time_us",
        why="Two honest clocks disagree by a moment, and a good right is refused.",
        killer=ByTests(
            (f"{_WORKER}::test_another_clock_is_past_a_time_only_by_more_than_the_skew",)
        ),
    ),
)

MUTANTS = (*_EVIDENCE, *_PARTIES, *_FENCES, *_MARGINS)
