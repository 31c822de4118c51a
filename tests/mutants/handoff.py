"""The handoff itself: gates, credit, publication, release, leases, aborts and quarantine."""

from tests.mutants.mutant import ByTests, Explore, Mutant, Vopr

_GATES = (
    Mutant(
        name="producer-gate-open",
        file="protocol/source.py",
        line="return all(self._ready_tokens[layer] >= needed for layer in layers)",
        planted="return True",
        why="A chunk is sent before its layer is computed; its checksum fits the garbage.",
        killer=Vopr(("published-is-true",), seeds=(5,)),
    ),
    Mutant(
        name="producer-gate-any-layer",
        file="protocol/source.py",
        line="return all(self._ready_tokens[layer] >= needed for layer in layers)",
        planted="return any(self._ready_tokens[layer] >= needed for layer in layers)",
        why="A chunk of several layers leaves when its first one is ready.",
        killer=ByTests(
            (
                "tests/protocol/test_source_walks.py"
                "::test_a_chunk_of_several_layers_waits_for_the_last_of_them",
            )
        ),
    ),
    Mutant(
        name="layer-ready-whole-prompt",
        file="nodes/source_side.py",
        line="job.transfer.mark_ready(layer, end)",
        planted="job.transfer.mark_ready(layer, len(job.sequence.tokens))",
        why="A layer of the first prefill chunk opens the gate for rows of later chunks.",
        killer=Vopr(("published-is-true",), seeds=(24,)),
    ),
    Mutant(
        name="request-schedule-streams",
        file="protocol/source.py",
        line="if self.grant.schedule is not Schedule.LAYER and not self._complete:",
        planted="if False:",
        why="A transfer that is scheduled whole is sent in small pieces.",
        killer=ByTests(
            (
                "tests/protocol/test_source_walks.py"
                "::test_a_request_schedule_sends_nothing_before_the_whole_prompt_is_computed",
            )
        ),
    ),
    Mutant(
        name="visibility-7-of-8",
        file="protocol/destination.py",
        line="return self.num_visible == len(self._chunks)",
        planted="return self.num_visible >= len(self._chunks) - 1",
        why="The entry is published before its last chunk is visible.",
        killer=Vopr(
            (
                "published-is-true",
                "liveness",
            ),
            seeds=(2,),
        ),
    ),
    Mutant(
        name="publish-before-coverage",
        file="nodes/destination_side.py",
        line="if not live or transfer.manifest is None or not transfer.all_visible:",
        planted="if not live or transfer.manifest is None:",
        why="A seal that overtakes the last chunks publishes at once.",
        killer=Vopr(("node-raises",), seeds=(0,)),
    ),
    Mutant(
        name="received-is-visible",
        file="protocol/destination.py",
        line="self.arrived_nbytes += nbytes",
        planted="self.arrived_nbytes += nbytes; self.num_visible += 1",
        why="A notification counts as visibility before anything was read back.",
        killer=Vopr(
            (
                "published-is-true",
                "liveness",
            ),
            seeds=(2,),
        ),
    ),
    Mutant(
        name="completion-counts-notices",
        file="protocol/destination.py",
        line="self.ledger.duplicate_nbytes += nbytes",
        planted="self.ledger.duplicate_nbytes += nbytes; self.num_visible += 1",
        why="Completion counts notifications, so a repeated one stands for a missing chunk.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_a_repeated_notification_does_not_stand_for_the_missing_chunk",
            )
        ),
    ),
    Mutant(
        name="duplicate-with-other-bytes",
        file="protocol/destination.py",
        line="return Arrival.DUPLICATE if same else Arrival.CORRUPT",
        planted="return Arrival.DUPLICATE",
        why="A second arrival with other bytes passes for a harmless repeat.",
        killer=ByTests(
            (
                "tests/protocol/test_destination_fences.py::"
                "test_a_duplicate_chunk_with_other_bytes_aborts_and_with_the_same_is_idempotent",
            )
        ),
    ),
    Mutant(
        name="short-chunk-accepted",
        file="protocol/destination.py",
        line="if chunk is None or chunk.spec.nbytes != nbytes:",
        planted="if chunk is None:",
        why="A chunk of another length counts as received.",
        killer=ByTests(
            (
                "tests/protocol/test_destination_fences.py"
                "::test_a_chunk_wrong_in_one_field_is_not_received[short]",
            )
        ),
    ),
    Mutant(
        name="chunk-after-abort",
        file="protocol/destination.py",
        line="if self.state not in (TransferState.RESERVED, TransferState.TRANSFERRING):",
        planted="if self.state is TransferState.PUBLISHED:",
        why="A chunk that lands during an abort is received again.",
        killer=ByTests(
            (
                "tests/protocol/test_destination_walks.py"
                "::test_an_aborted_transfer_cancels_what_is_not_visible_and_takes_nothing_more",
            )
        ),
    ),
    Mutant(
        name="wrong-source-blocks",
        file="core/reblock.py",
        line="return slice(rows.start // size, -(-rows.stop // size))",
        planted="return slice(0, -(-rows.stop // size) - rows.start // size)",
        why="Where the destination reuses a prefix, the wrong blocks of the source move.",
        killer=Vopr(("published-is-true",), seeds=(4,)),
    ),
    Mutant(
        name="rows-from-the-start-of-a-block",
        file="core/reblock.py",
        line="source_slot=rows.start % sizes.source,",
        planted="source_slot=0,",
        why="A prefix that ends inside a larger block of the source moves other rows.",
        killer=ByTests(
            (
                "tests/nodes/test_block_sizes.py"
                "::test_a_pinned_prefix_may_end_inside_a_block_of_the_other_side[32-8]",
            )
        ),
    ),
    Mutant(
        name="any-layout-is-transformed",
        file="core/reblock.py",
        line="if name not in BRIDGED and getattr(source, name) != getattr(destination, name):",
        planted="if False:",
        why="Workers whose rows differ in shape or type exchange them.",
        killer=ByTests(
            ("tests/runtime/test_reblocked_runs.py::test_only_block_size_and_stages_may_differ",)
        ),
    ),
    Mutant(
        name="blocks-out-of-order",
        file="protocol/source.py",
        line="return self.grant.block_ids[spec.block_start : spec.block_start + spec.num_blocks]",
        planted="return self.grant.block_ids[::-1]"
        "[spec.block_start : spec.block_start + spec.num_blocks]",
        why="Chunks land in the right reservation and in the wrong blocks of it.",
        killer=Vopr(
            (
                "published-is-true",
                "liveness",
            ),
            seeds=(10,),
        ),
    ),
)

_CREDITS = (
    Mutant(
        name="credit-at-receive",
        file="nodes/destination_side.py",
        line="spec = transfer.spec(chunk_id)",
        planted="spec = transfer.spec(chunk_id); self._context.send(incoming.fence.source_id, "
        "CreditReturn(fence=incoming.fence, chunk_ids=(chunk_id,)))",
        why="Credit returns when bytes are received, while staging still owns the buffer.",
        killer=Vopr(("credits-bound-bytes",), seeds=(3,)),
    ),
    Mutant(
        name="credit-at-send-complete",
        file="nodes/source_side.py",
        line="transfer.summed(chunk_id, checksum)",
        planted="transfer.summed(chunk_id, checksum); transfer.visible(chunk_id)",
        why="Credit returns when the bytes have left, not when they are visible.",
        killer=Vopr(("credits-bound-bytes",), seeds=(16,)),
    ),
    Mutant(
        name="credit-unbounded",
        file="protocol/credits.py",
        line="if self.inflight_nbytes + nbytes > self.capacity_nbytes:",
        planted="if self.inflight_nbytes > self.capacity_nbytes:",
        why="The last chunk that is let in exceeds the window.",
        killer=Vopr(("credits-bound-bytes",), seeds=(0,)),
    ),
    Mutant(
        name="credit-returned-twice",
        file="protocol/source.py",
        line="return False",
        planted="self.credits.release(self.plan[chunk_id].nbytes); return False",
        why="A repeated credit return gives credit again.",
        killer=Vopr(
            (
                "node-raises",
                "credits-bound-bytes",
            ),
            seeds=(5,),
        ),
    ),
    Mutant(
        name="reader-credit-not-returned",
        file="nodes/destination_side.py",
        line="incoming.window.release(spec.nbytes)",
        planted="pass",
        why="A reader never gets its credit back and stops after one window.",
        killer=Vopr(("liveness",), seeds=(2,)),
    ),
    Mutant(
        name="read-without-credit",
        file="nodes/incoming.py",
        line="while self._readable and self.window.try_acquire(self._readable[0].nbytes):",
        planted="while self._readable:",
        why="A pull orders every read at once.",
        killer=Vopr(
            (
                "node-raises",
                "credits-bound-bytes",
            ),
            seeds=(0,),
        ),
    ),
    Mutant(
        name="offer-reads-again",
        file="nodes/incoming.py",
        line="if self.transfer.is_declared(chunk_id) and chunk_id not in queued:",
        planted="if chunk_id not in queued:",
        why="A repeated offer reads chunks that are read already.",
        killer=Vopr(("node-raises",), seeds=(4,)),
    ),
    Mutant(
        name="offer-before-sum",
        file="nodes/source_side.py",
        line="fence, push = job.fence, job.grant.direction is Direction.PUSH",
        planted="fence, push = job.fence, job.grant.direction is Direction.PUSH; "
        "push or self._offer(job, tuple(spec.chunk_id for spec in transfer.plan))",
        why="A pull source offers every chunk as soon as the first is ready.",
        killer=Vopr(
            (
                "liveness",
                "calm-serves",
                "published-is-true",
            ),
            seeds=(25,),
        ),
    ),
)

_PUBLICATION = (
    Mutant(
        name="publish-older-generation",
        file="protocol/directory.py",
        line="if current is not None and current.generation >= entry.generation:",
        planted="if False:",
        why="Without the compare in compare-and-swap an older generation replaces a newer one.",
        killer=ByTests(
            (
                "tests/protocol/test_directory.py"
                "::test_an_older_generation_never_replaces_a_newer_one",
            )
        ),
    ),
    Mutant(
        name="publish-fenced-generation",
        file="protocol/directory.py",
        line="if self.is_fenced(entry.request_id, entry.generation):",
        planted="if False:",
        why="A late completion publishes an attempt that was given up.",
        killer=ByTests(
            (
                "tests/protocol/test_directory.py"
                "::test_a_fenced_generation_cannot_enter_and_the_next_can",
            )
        ),
    ),
    Mutant(
        name="fence-falls",
        file="protocol/directory.py",
        line="floor = max(generation, self._floors.pop(request_id, 0))",
        planted="floor = generation",
        why="A late fence of an old generation lets a newer one back in.",
        killer=ByTests(("tests/protocol/test_directory.py::test_a_fence_never_moves_back",)),
    ),
    Mutant(
        name="lookup-any-generation",
        file="protocol/directory.py",
        line="return entry if entry is not None and entry.generation == generation else None",
        planted="return entry",
        why="Decode takes an entry of another generation for its own.",
        killer=ByTests(
            ("tests/protocol/test_directory.py::test_a_newer_generation_replaces_an_older_one",)
        ),
    ),
    Mutant(
        name="end-not-fenced",
        file="protocol/directory.py",
        line="self.fence(request_id, generation + 1)",
        planted="pass",
        why="A generation that has ended can be reserved and published again.",
        killer=ByTests(
            (
                "tests/protocol/test_directory.py"
                "::test_an_ended_request_stays_fenced_against_its_own_late_completion",
            )
        ),
    ),
    Mutant(
        name="admit-before-publish",
        file="nodes/destination_side.py",
        line="transfer.validate()",
        planted="transfer.validate(); self._admit(transfer)",
        why="Decode is admitted from an entry that is not published yet.",
        killer=Vopr(("node-raises",), seeds=(0,)),
    ),
    Mutant(
        name="release-before-publish",
        file="nodes/destination_side.py",
        line="transfer.manifest = message.manifest",
        planted="transfer.manifest = message.manifest; self._context.send("
        "incoming.fence.source_id, SourceRelease(fence=incoming.fence))",
        why="The source loses the only recoverable copy when it seals.",
        killer=Vopr(("copies-outlive-transfers",), seeds=(0,)),
    ),
    Mutant(
        name="stale-seal-released",
        file="nodes/destination_side.py",
        line='context.send(fence.source_id, AbortTransfer(fence=fence, reason="not_reserved"))',
        planted="context.send(fence.source_id, SourceRelease(fence=fence))",
        why="A seal that meets no reservation is acknowledged as published.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_a_seal_without_a_reservation_is_never_acknowledged_as_published",
            )
        ),
    ),
    Mutant(
        name="second-manifest-replaces",
        file="nodes/destination_side.py",
        line="if transfer.manifest is not None and transfer.manifest != message.manifest:",
        planted="if False:",
        why="A second, different manifest replaces the first.",
        killer=ByTests(
            (
                "tests/protocol/test_destination_fences.py"
                "::test_a_second_manifest_that_differs_aborts",
            )
        ),
    ),
    Mutant(
        name="validation-skipped",
        file="nodes/destination_side.py",
        line="defect = transfer.defect()",
        planted='defect = ""',
        why="Corrupt bytes are published because nobody compares anything.",
        killer=Vopr(("published-is-true",), seeds=(1,)),
    ),
    Mutant(
        name="superseded-lives-on",
        file="nodes/destination_aborts.py",
        line="if incoming.fence.request_id == fence.request_id:",
        planted="if False:",
        why="An older attempt keeps its storage beside the newer one.",
        killer=ByTests(
            (
                "tests/spec/test_publication_order.py"
                "::test_a_newer_generation_fences_the_older_handoff_with_valid_checksums",
            )
        ),
    ),
)

_LEASES = (
    Mutant(
        name="lease-by-insertion-order",
        file="protocol/lease.py",
        line="heapq.heappush(self._heap, (expires_at_us, self._sequence, key))",
        planted="self._heap.append((expires_at_us, self._sequence, key))",
        why="Leases expire in the order of their making, whatever their end is.",
        killer=ByTests(
            ("tests/protocol/test_lease.py::test_leases_expire_earliest_first_and_once",)
        ),
    ),
    Mutant(
        name="lease-shortened",
        file="protocol/lease.py",
        line="if self._expiry.get(key, -1) >= expires_at_us:",
        planted="if False:",
        why="A late renewal ends a lease earlier.",
        killer=ByTests(("tests/protocol/test_lease.py::test_a_renewal_never_shortens",)),
    ),
    Mutant(
        name="destination-never-renews",
        file="nodes/worker.py",
        line="by_peer[incoming.fence.source_id].append(incoming.fence)",
        planted="pass",
        why="A source that waits long for its turn gives a live handoff up.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_each_side_renews_the_others_lease_while_nothing_else_is_said",
            )
        ),
    ),
    Mutant(
        name="source-never-renews",
        file="nodes/worker.py",
        line="by_peer[job.fence.destination_id].append(job.fence)",
        planted="pass",
        why="A destination gives up on a source that computes longer than a lease.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_each_side_renews_the_others_lease_while_nothing_else_is_said",
            )
        ),
    ),
)

_REPEATS = (
    Mutant(
        name="seal-not-repeated",
        file="nodes/source_side.py",
        line="self._send_seal(job, again=True)",
        planted="pass",
        why="One lost Seal costs a whole lease and the attempt.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_a_seal_and_an_abort_are_said_again_until_they_are_answered",
            )
        ),
    ),
    Mutant(
        name="abort-not-repeated",
        file="nodes/destination_aborts.py",
        line="if self._context.now_us >= transfer.next_retry_us:",
        planted="if False:",
        why="A lost AbortTransfer leaves the blocks in quarantine for a whole lease.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_a_seal_and_an_abort_are_said_again_until_they_are_answered",
            )
        ),
    ),
    Mutant(
        name="present-not-repeated",
        file="nodes/source_rights.py",
        line="if self._context.now_us >= job.next_present_us:",
        planted="if False:",
        why="A lost Present or Authorized costs the whole attempt.",
        killer=ByTests(
            (
                "tests/protocol/test_capability_sides.py"
                "::test_an_unanswered_presentation_is_repeated",
            )
        ),
    ),
)

_ABORTS = (
    Mutant(
        name="free-while-peer-writes",
        file="protocol/destination.py",
        line="return self.local_quiesced and self.remote_quiesced",
        planted="return self.local_quiesced",
        why="Blocks are free while the source may still write them.",
        killer=Vopr(("writes-are-owned",), seeds=(108,)),
    ),
    Mutant(
        name="free-while-own-io-runs",
        file="protocol/destination.py",
        line="return self.local_quiesced and self.remote_quiesced",
        planted="return self.remote_quiesced",
        why="Blocks are free while this side's own read may still fill them.",
        killer=Vopr(("writes-are-owned",), seeds=(8,)),
    ),
    Mutant(
        name="quarantine-skipped",
        file="nodes/destination_aborts.py",
        line="context.memory.quarantine(transfer.block_table, transfer.grant.block_ids)",
        planted="context.memory.free(transfer.block_table)",
        why="An abort frees granted blocks at once.",
        killer=Vopr(("blocks-have-owners",), seeds=(0,)),
    ),
    Mutant(
        name="quarantine-keeps-the-rest",
        file="cache/pool.py",
        line="self.free([block for block in block_table if block not in written])",
        planted="pass",
        why="An abort leaks the pinned prefix and the growth blocks.",
        killer=Vopr(("blocks-have-owners",), seeds=(1,)),
    ),
    Mutant(
        name="quarantine-never-ends",
        file="nodes/destination_aborts.py",
        line="self._context.memory.end_quarantine(transfer.grant.block_ids)",
        planted="pass",
        why="Aborted blocks are lost for good.",
        killer=Vopr(("blocks-have-owners",), seeds=(0,)),
    ),
    Mutant(
        name="source-frees-while-sending",
        file="nodes/source_aborts.py",
        line="if job.io_quiesced and not job.sequence.in_batch:",
        planted="if not job.sequence.in_batch:",
        why="The source copy is freed while the data plane reads it.",
        killer=Vopr(("copies-outlive-transfers",), seeds=(101,)),
    ),
    Mutant(
        name="source-frees-while-computing",
        file="nodes/source_aborts.py",
        line="if job.io_quiesced and not job.sequence.in_batch:",
        planted="if job.io_quiesced:",
        why="The source copy is freed while a batch writes it.",
        killer=Vopr(("copies-outlive-transfers",), seeds=(4,)),
    ),
    Mutant(
        name="source-io-not-cancelled",
        file="nodes/source_aborts.py",
        line="self._context.emit(CancelIo(reservation_id=job.fence.reservation_id))",
        planted="job.io_quiesced = True; self.try_finish(job)",
        why="The source says that it is quiet and goes on sending.",
        killer=Vopr(
            (
                "copies-outlive-transfers",
                "writes-are-owned",
            ),
            seeds=(57,),
        ),
    ),
    Mutant(
        name="abort-answered-at-once",
        file="nodes/source_aborts.py",
        line='self._context.trace("source_aborting", job.fence, reason=reason)',
        planted="self._context.send(job.fence.destination_id, TransferQuiesced(fence=job.fence))",
        why="Quiescence is promised before it is reached.",
        killer=Explore("is given back while its source writes", {"num_cancels": 1}),
    ),
    Mutant(
        name="any-death-quiets-the-source",
        file="nodes/destination_aborts.py",
        line="if (fence.source_id, fence.source_epoch) == (worker_id, epoch):",
        planted="if True:",
        why="The death of any worker counts as the quiet of every source.",
        killer=Vopr(("writes-are-owned",), seeds=(76,)),
    ),
    Mutant(
        name="local-abort-while-computing",
        file="nodes/local_side.py",
        line="if self._queue.remove(sequence) and not sequence.is_loading:",
        planted="if self._queue.remove(sequence) or True:",
        why="A colocated abort frees blocks that the running batch writes.",
        killer=Vopr(("writes-are-owned",), seeds=(50,)),
    ),
    Mutant(
        name="reservation-id-reused",
        file="nodes/context.py",
        line="return (self.ordinal << 48) | ((self.epoch & 0xFFFF) << 32) | self._num_reservations",
        planted="return (self.ordinal << 48) | self._num_reservations",
        why="The next life of a worker mints the ids of the last one again.",
        killer=ByTests(
            ("tests/nodes/test_fences.py::test_no_two_lives_of_a_worker_mint_the_same_reservation",)
        ),
    ),
)

MUTANTS = (*_GATES, *_CREDITS, *_PUBLICATION, *_LEASES, *_REPEATS, *_ABORTS)
