"""Router and streams: attempts, accounts, tokens in order, one end, repairs of lost words."""

from tests.mutants.mutant import ByTests, Mutant, Vopr

_STREAMS = (
    Mutant(
        name="tokens-twice-at-resync",
        file="nodes/streams.py",
        line="elif row.token.index == len(record.outputs):",
        planted="elif row.token.index <= len(record.outputs):",
        why="Tokens that were sent again are delivered again.",
        killer=Vopr(("streams-are-exact",), seeds=(3,)),
    ),
    Mutant(
        name="tokens-with-a-gap",
        file="nodes/streams.py",
        line="elif row.token.index == len(record.outputs):",
        planted="elif row.token.index >= len(record.outputs):",
        why="A lost token is skipped.",
        killer=Vopr(("streams-are-exact",), seeds=(3,)),
    ),
    Mutant(
        name="done-before-its-tokens",
        file="nodes/streams.py",
        line="if len(record.outputs) < message.usage.completion_tokens:",
        planted="if False:",
        why="The end overtakes a lost token and the answer is short.",
        killer=Vopr(("streams-are-exact",), seeds=(7,)),
    ),
    Mutant(
        name="resync-skips-one",
        file="nodes/decode_side.py",
        line="for token in outputs[message.next_index :]",
        planted="for token in outputs[message.next_index + 1 :]",
        why="The token that was lost is not among those sent again.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_a_resync_sends_every_token_from_the_asked_index_and_a"
                "n_acknowledged_end_is_forgotten",
            )
        ),
    ),
    Mutant(
        name="replay-at-another-position",
        file="nodes/sequence.py",
        line="start=self.num_computed,",
        planted="start=self.num_computed + bool(self.outputs),",
        why="Rows and draws after a replay are keyed by another position.",
        killer=Vopr(("reads-are-true",), seeds=(0,)),
    ),
    Mutant(
        name="draw-without-position",
        file="engine/sampling.py",
        line="key = (seed % (1 << 64)) | (position << 64)",
        planted="key = seed % (1 << 64)",
        why="Every token of a request is drawn with the same number, and a replay cannot go on.",
        killer=ByTests(
            ("tests/engine/test_sampling.py::test_uniform_is_keyed_by_seed_and_position",)
        ),
    ),
    Mutant(
        name="first-token-dropped",
        file="nodes/decode_side.py",
        line="self._take(sequence, manifest.first_token)",
        planted="sequence.append(manifest.first_token)",
        why="The token that came with the manifest never reaches the client.",
        killer=Vopr(("streams-are-exact",), seeds=(0,)),
    ),
    Mutant(
        name="stop-token-ignored",
        file="core/finish.py",
        line="if last in sampling.stop_token_ids:",
        planted="if False:",
        why="A stop token does not end the answer.",
        killer=ByTests(("tests/core/test_finish.py::test_rule",)),
    ),
    Mutant(
        name="end-not-repeated",
        file="nodes/decode_side.py",
        line="if now_us < ended.next_retry_us:",
        planted="if True:",
        why="A lost Done is never said again and its record stays.",
        killer=Vopr(("nothing-held",), seeds=(41,)),
    ),
    Mutant(
        name="end-not-acknowledged",
        file="nodes/decode_side.py",
        line="self.ended.pop(fence.transfer_id, None)",
        planted="pass",
        why="Ended sequences are kept though the router has them.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_a_resync_sends_every_token_from_the_asked_index_and_a"
                "n_acknowledged_end_is_forgotten",
            )
        ),
    ),
)

_ATTEMPTS = (
    Mutant(
        name="retry-in-the-same-generation",
        file="nodes/attempts.py",
        line="record.generation += 1",
        planted="record.generation = max(1, record.generation)",
        why="A second attempt cannot be told from the first.",
        killer=Vopr(("generations-only-rise",), seeds=(59,)),
    ),
    Mutant(
        name="account-keeps-prefills",
        file="nodes/router_context.py",
        line="view.end_prefill(key)",
        planted="pass",
        why="Failed attempts count as queued prompts for ever.",
        killer=Vopr(("nothing-held",), seeds=(0,)),
    ),
    Mutant(
        name="account-keeps-blocks",
        file="nodes/router_context.py",
        line="if view.decode_blocks.pop(key, None) is not None:",
        planted="if key in view.decode_blocks:",
        why="Ended requests take decode room for ever.",
        killer=Vopr(("nothing-held",), seeds=(0,)),
    ),
    Mutant(
        name="cancel-forgets-the-destination",
        file="nodes/router_context.py",
        line="for worker_id in dict.fromkeys((fence.source_id, fence.destination_id)):",
        planted="for worker_id in (fence.source_id,):",
        why="A cancelled stream is decoded to its end for nobody.",
        killer=ByTests(("tests/nodes/test_fences.py::test_both_legs_hear_of_a_cancel",)),
    ),
    Mutant(
        name="cancel-forgets-the-source",
        file="nodes/router_context.py",
        line="for worker_id in dict.fromkeys((fence.source_id, fence.destination_id)):",
        planted="for worker_id in (fence.destination_id,):",
        why="A cancelled prompt is computed on until the destination says so.",
        killer=ByTests(("tests/nodes/test_fences.py::test_both_legs_hear_of_a_cancel",)),
    ),
    Mutant(
        name="cancel-of-unknown-unanswered",
        file="nodes/worker.py",
        line="self.context.send(ROUTER, messages.Aborted(fence=fence, reason=reason))",
        planted="pass",
        why="A cancel that overtakes its reservation is never answered.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_a_cancel_of_what_is_not_here_is_answered_all_the_same",
            )
        ),
    ),
    Mutant(
        name="cancel-of-unknown-unfenced",
        file="nodes/worker.py",
        line="self.directory.fence(fence.request_id, fence.generation + 1)",
        planted="pass",
        why="A reservation that arrives after its cancel is opened for nobody.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_a_reservation_that_arrives_after_its_cancel_is_not_opened",
            )
        ),
    ),
    Mutant(
        name="unanswered-not-repeated",
        file="nodes/router.py",
        line="self._attempts.repeat(record)",
        planted="pass",
        why="One lost Reserve or Prefill costs a whole attempt.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_what_nobody_has_answered_is_said_again_within_the_attempt",
            )
        ),
    ),
    Mutant(
        name="superseded-answer-ignored",
        file="nodes/router.py",
        line='self.context.cancel_attempt(fence, "superseded")',
        planted="pass",
        why="A reservation of a superseded attempt is held for a whole lease.",
        killer=ByTests(
            ("tests/nodes/test_fences.py::test_a_superseded_attempt_is_told_to_let_go",)
        ),
    ),
    Mutant(
        name="stale-done-unanswered",
        file="nodes/router.py",
        line="self.context.send(view.info.worker_id, messages.DoneAck(fence=fence))",
        planted="pass",
        why="The end of a superseded attempt is repeated in vain.",
        killer=ByTests(
            ("tests/nodes/test_fences.py::test_a_superseded_attempt_is_told_to_let_go",)
        ),
    ),
    Mutant(
        name="lost-decoder-not-noticed",
        file="nodes/router.py",
        line='self._attempts.on_failed(record, "decode_worker_lost")',
        planted="pass",
        why="A request whose decode worker died waits until its stream counts as stalled.",
        killer=ByTests(
            (
                "tests/nodes/test_router_ends.py"
                "::test_a_stream_whose_worker_died_goes_on_elsewhere_at_once",
            )
        ),
    ),
    Mutant(
        name="peer-death-not-told",
        file="nodes/router.py",
        line="for peer_id, epoch in believed.items():",
        planted="for peer_id, epoch in ():",
        why="A worker that missed the word of a death waits for the dead.",
        killer=ByTests(
            ("tests/nodes/test_repairs.py::test_a_lost_word_of_a_death_ends_the_quarantine_later",)
        ),
    ),
    Mutant(
        name="peer-birth-not-told",
        file="nodes/router.py",
        line="self.context.send(worker_id, messages.PeerUp(info=info))",
        planted="pass",
        why="A worker that missed the word of a new life never talks to it.",
        killer=Vopr(("liveness",), seeds=(38,)),
    ),
    Mutant(
        name="older-life-of-a-peer",
        file="nodes/peers.py",
        line="if info.worker_id == self._context.worker_id or "
        "(known and known.epoch >= info.epoch):",
        planted="if info.worker_id == self._context.worker_id:",
        why="A late word of an old life replaces a newer one.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_a_late_word_of_an_older_life_of_a_peer_changes_nothing",
            )
        ),
    ),
    Mutant(
        name="denied-worker-asked-at-once",
        file="nodes/attempts.py",
        line="view.full = True",
        planted="pass",
        why="A full worker is asked again for every event.",
        killer=ByTests(
            (
                "tests/nodes/test_repairs.py"
                "::test_a_full_worker_is_asked_again_only_after_news_from_it",
            )
        ),
    ),
    Mutant(
        name="failed-source-not-avoided",
        file="nodes/attempts.py",
        line="record.avoid_prefill |= {fence.source_id}",
        planted="pass",
        why="Every attempt goes to the same broken source.",
        killer=ByTests(
            ("tests/nodes/test_fences.py::test_a_failed_source_is_avoided_by_the_next_attempt",)
        ),
    ),
    Mutant(
        name="prefill-after-release",
        file="nodes/source_side.py",
        line="self._released.fence(fence.request_id, fence.generation + 1)",
        planted="pass",
        why="A prefill that is repeated after the handover is refused, not answered.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_a_prefill_that_is_repeated_after_the_handover_is_accepted_again",
            )
        ),
    ),
    Mutant(
        name="attempts-without-end",
        file="policy/fallback.py",
        line="if attempt >= max_attempts or not budget_left:",
        planted="if not budget_left:",
        why="A request that always fails is tried for ever.",
        killer=ByTests(("tests/policy/test_fallback.py::test_the_whole_table",)),
    ),
)

MUTANTS = (*_STREAMS, *_ATTEMPTS)
