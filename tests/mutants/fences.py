"""The fences of specification 0x06E: each check of a sealed manifest, and of each message."""

from tests.mutants.mutant import ByTests, Explore, Mutant, Vopr

_DESTINATION = "protocol/destination.py"
_MANIFESTS = (
    "tests/protocol/test_destination_fences.py"
    "::test_a_manifest_wrong_in_one_field_is_refused_by_name"
)
_STRANGERS = (
    "tests/protocol/test_source_fences.py"
    "::test_a_message_about_another_handoff_or_life_changes_nothing"
)

_HEARD = "tests/nodes/test_fences.py::test_only_the_attempt_that_counts_is_heard"


def _manifest(case: str) -> ByTests:
    return ByTests((f"{_MANIFESTS}[{case}]",))


def _ignored(field: str, case: str, why: str) -> Mutant:
    """The fence is compared, but for one of its fields."""
    compared = f"request.fence.__replace__({field}=self.fence.{field}) == self.fence"
    return Mutant(
        name=f"manifest-ignores-{field.replace('_', '-')}",
        file=_DESTINATION,
        line='("fence_mismatch", lambda: request.fence == self.fence),',
        planted=f'("fence_mismatch", lambda: {compared}),',
        why=why,
        killer=_manifest(case),
    )


def _removed(name: str, line: str, case: str, why: str) -> Mutant:
    """A check of the manifest is gone."""
    return Mutant(
        name=f"manifest-ignores-{name}",
        file=_DESTINATION,
        line=line,
        planted="",
        why=why,
        killer=_manifest(case),
    )


def _unheard(field: str, case: str, why: str) -> Mutant:
    """The router compares a worker's word with the attempt that counts, but for one field."""
    ignored = f"reservation_id=mine.reservation_id, {field}=mine.{field}"
    return Mutant(
        name=f"router-{field.replace('_', '-')}-unchecked",
        file="nodes/record.py",
        line="return msgspec.structs.replace(fence, reservation_id=mine.reservation_id) == mine",
        planted=f"return msgspec.structs.replace(fence, {ignored}) == mine",
        why=why,
        killer=ByTests((f"{_HEARD}[{case}]",)),
    )


_FIELDS = (
    _ignored("tenant_id", "tenant", "One tenant's K/V is published as another's."),
    _ignored("request_id", "request", "A request decodes the prompt of another one."),
    _ignored("generation", "older generation", "A superseded attempt publishes after its end."),
    _ignored("attempt", "attempt", "Two tries under one generation are taken for one another."),
    _ignored("source_id", "source", "A manifest is taken from a worker that computed nothing."),
    _ignored("source_epoch", "source epoch", "A dead life of the source seals for the live one."),
    _ignored("destination_id", "destination", "A manifest for another worker's blocks is taken."),
    _ignored(
        "destination_epoch", "destination epoch", "Blocks of an earlier life are taken for these."
    ),
    _ignored("reservation_id", "reservation", "A manifest speaks of blocks reserved before."),
)

_CHECKS = (
    _removed(
        "transfer-id",
        '("transfer_id_mismatch", lambda: placement.transfer_id == self.fence.transfer_id),',
        "transfer id",
        "The placement belongs to another transfer than the request.",
    ),
    _removed(
        "model",
        '("model_mismatch", lambda: manifest.model.digest == self.identity.digest),',
        "adapter",
        "K/V of another checkpoint, adapter or position policy is decoded.",
    ),
    _removed(
        "layout-digest",
        '("layout_mismatch", lambda: tensor.layout_digest == self.layout.digest),',
        "heads and width, same bytes",
        "Bytes of the right length are decoded under another layout.",
    ),
    _removed(
        "layout",
        '("layout_mismatch", lambda: tensor.layout.digest == tensor.layout_digest),',
        "layout under the right digest",
        "The digest is right and the layout beside it is not.",
    ),
    _removed(
        "prompt",
        '("prompt_mismatch", lambda: request.prompt_digest == prompt_digest(tokens)),',
        "prompt digest",
        "The source has computed other tokens than the destination reserved for.",
    ),
    _removed(
        "token-start",
        '("token_start_mismatch", lambda: request.token_start == self.grant.token_start),',
        "token start",
        "Rows are off by the reused prefix.",
    ),
    _removed(
        "num-tokens",
        '("num_tokens_mismatch", lambda: request.num_tokens == self.grant.num_tokens),',
        "fewer tokens",
        "An entry claims rows that nobody has computed.",
    ),
    _removed(
        "route-epoch",
        '("route_epoch_mismatch", lambda: placement.route_epoch == self.grant.route_epoch),',
        "route epoch",
        "A route that was taken back still delivers.",
    ),
    _removed(
        "direction",
        '("direction_mismatch", lambda: placement.direction == self.grant.direction),',
        "direction",
        "A push is sealed for what was reserved as a pull.",
    ),
    _removed(
        "schedule",
        '("schedule_mismatch", lambda: placement.schedule == self.grant.schedule),',
        "schedule",
        "Both sides believe in different schedules.",
    ),
    _removed(
        "cached-tokens",
        '("cached_tokens", lambda: self._can_be_cached(manifest.num_cached_tokens)),',
        "negative cached tokens",
        "The client is billed for an impossible cache hit.",
    ),
    _removed(
        "chunk-set",
        '("chunk_set_mismatch", lambda: tuple(specs) == self.plan),',
        "chunk bytes",
        "The sides cut the transfer into different chunks.",
    ),
    _removed(
        "first-token-index",
        '("first_token_index", lambda: self._is_next(manifest.first_token)),',
        "first token index",
        "A replayed stream starts at the wrong token.",
    ),
    Mutant(
        name="coverage-counts-only",
        file="core/manifest.py",
        line="return count == expected and len(cells) == expected and in_range",
        planted="return count == expected",
        why="A chunk twice and another one missing count as complete coverage.",
        killer=ByTests(
            ("tests/core/test_manifest.py::test_a_negative_layer_does_not_stand_for_a_real_one",)
        ),
    ),
    Mutant(
        name="checksum-of-one-chunk",
        file=_DESTINATION,
        line="lambda: all(",
        planted="lambda: not placement.chunks or any(",
        why="One good chunk vouches for all the others.",
        killer=Vopr(("published-is-true",), seeds=(1,)),
    ),
)

_MESSAGES = (
    Mutant(
        name="seal-fence-unchecked",
        file="nodes/destination_side.py",
        line="if incoming.fence != message.fence:",
        planted="if False:",
        why="A seal of another reservation of the same generation is taken.",
        killer=ByTests(
            (
                "tests/protocol/test_destination_fences.py"
                "::test_a_seal_under_another_fence_changes_nothing_and_is_counted[reservation]",
            )
        ),
    ),
    Mutant(
        name="peer-epoch-unchecked",
        file="nodes/context.py",
        line="return peer is not None and peer.epoch == epoch",
        planted="return peer is not None",
        why="A message of a dead life of a peer is heard.",
        killer=ByTests(
            (
                "tests/protocol/test_source_fences.py"
                "::test_a_prefill_that_does_not_fit_its_grant_is_denied[destination epoch]",
            )
        ),
    ),
    Mutant(
        name="party-unchecked",
        file="nodes/worker.py",
        line="return (me, sender) in ((source, destination), (destination, source))",
        planted="return True",
        why="Anybody may release, abort or seal a handoff of two others.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_a_live_worker_that_is_no_party_cannot_release_a_copy",
            )
        ),
    ),
    Mutant(
        name="receiver-epoch-unchecked",
        file="nodes/worker.py",
        line="return me in (source, destination)",
        planted="return me[0] in (source[0], destination[0])",
        why="The router's word to an earlier life of this worker is acted upon.",
        killer=Explore("a stale message has an effect", {"num_crashes": 1}),
    ),
    Mutant(
        name="chunk-epoch-unchecked",
        file="nodes/destination_side.py",
        line="is_source = (fence.source_id, fence.source_epoch) == "
        "(event.source_id, event.source_epoch)",
        planted="is_source = fence.source_id == event.source_id",
        why="A chunk that a dead life of the source had sent counts as received.",
        killer=ByTests(
            (
                "tests/protocol/test_destination_fences.py"
                "::test_a_chunk_wrong_in_one_field_is_not_received[source epoch]",
            )
        ),
    ),
    Mutant(
        name="job-fence-unchecked",
        file="nodes/source_jobs.py",
        line="if job is None or job.fence != fence:",
        planted="if job is None:",
        why="A release or credit of another reservation of this generation is taken.",
        killer=ByTests(
            (
                "tests/protocol/test_source_fences.py"
                "::test_a_copy_is_not_released_under_a_fence_that_differs",
            )
        ),
    ),
    Mutant(
        name="reservation-fence-unchecked",
        file="nodes/incoming_table.py",
        line="if incoming is None or incoming.fence != fence or aborting:",
        planted="if incoming is None or aborting:",
        why="Offers and capabilities for another reservation are taken.",
        killer=ByTests(
            (
                "tests/nodes/test_fences.py"
                "::test_a_word_about_another_reservation_of_the_same_generation_changes_nothing",
            )
        ),
    ),
    Mutant(
        name="aborting-is-live",
        file="nodes/incoming_table.py",
        line="aborting = incoming is not None and incoming.transfer.state "
        "is TransferState.ABORTING",
        planted="aborting = False",
        why="An aborting transfer takes a capability and orders reads.",
        killer=ByTests(
            ("tests/nodes/test_fences.py::test_an_aborting_reservation_lets_nobody_in",)
        ),
    ),
    Mutant(
        name="router-hears-dead-lives",
        file="nodes/router.py",
        line="view = context.fleet.get(envelope.sender_id, envelope.sender_epoch)",
        planted="view = context.fleet.get(envelope.sender_id)",
        why="Loads and tokens of a dead life count as the live one's.",
        killer=ByTests(("tests/nodes/test_fences.py::test_a_dead_life_tells_the_router_nothing",)),
    ),
    _unheard(
        "generation",
        "older generation",
        "The end of a superseded attempt ends the one that counts.",
    ),
    _unheard("source_epoch", "source epoch", "An answer about a dead life of the source is heard."),
    _unheard(
        "destination_epoch",
        "destination epoch",
        "The publication or the end of an older life of the destination is heard.",
    ),
    Mutant(
        name="router-reservation-unchecked",
        file="nodes/record.py",
        line="if mine is None or mine.reservation_id not in (0, fence.reservation_id):",
        planted="if mine is None:",
        why="The end of an earlier reservation of this generation is taken for this one's.",
        killer=ByTests((f"{_HEARD}[reservation]",)),
    ),
    Mutant(
        name="router-takes-old-tokens",
        file="nodes/streams.py",
        line="if record is None or record.fence is None or row.generation != record.generation:",
        planted="if record is None or record.fence is None:",
        why="Tokens of a superseded attempt reach the client.",
        killer=ByTests(
            ("tests/nodes/test_fences.py::test_tokens_of_another_generation_are_not_delivered",)
        ),
    ),
    Mutant(
        name="older-life-joins",
        file="nodes/router.py",
        line="newer = current is not None and current.info.epoch > info.epoch",
        planted="newer = False",
        why="A late Hello of a dead life replaces the live one.",
        killer=ByTests(
            ("tests/nodes/test_fleet.py::test_an_older_life_of_a_worker_cannot_come_back",)
        ),
    ),
    Mutant(
        name="life-that-is-over-joins",
        file="nodes/router.py",
        line="if newer or context.fleet.is_over(info.worker_id, info.epoch):",
        planted="if newer:",
        why="A Hello that comes after the death of its life brings a dead worker back.",
        killer=ByTests(
            (
                "tests/nodes/test_fleet.py"
                "::test_a_late_hello_of_a_life_that_is_over_joins_nobody[True]",
            )
        ),
    ),
)

MUTANTS = (*_FIELDS, *_CHECKS, *_MESSAGES)
