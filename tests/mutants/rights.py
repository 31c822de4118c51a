"""Transfer capabilities: every check, the nonce, the clock, and both ends of the gate."""

from tests.mutants.mutant import ByTests, Mutant, Vopr

_FILE = "protocol/capability.py"
_GATE = "tests/protocol/test_capability.py"
_SIDES = "tests/protocol/test_capability_sides.py"


def _gate(case: str) -> ByTests:
    name = "test_a_capability_wrong_in_one_field_is_denied_by_name_and_spends_nothing"
    return ByTests((f"{_GATE}::{name}[{case}]",))


def _removed(name: str, line: str, case: str, why: str) -> Mutant:
    """One check of a capability is gone."""
    return Mutant(
        name=f"capability-ignores-{name}",
        file=_FILE,
        line=line,
        planted="",
        why=why,
        killer=_gate(case),
    )


_CHECKS = (
    _removed(
        "ttl",
        "(denial.TTL, lambda: 0 < capability.ttl_us <= self._max_ttl_us),",
        "ttl above the limit",
        "A right may be minted for ever.",
    ),
    _removed(
        "tenant",
        "(denial.TENANT, lambda: theirs.tenant_id == mine.tenant_id),",
        "tenant",
        "A right of one tenant opens another's memory.",
    ),
    _removed(
        "source",
        "(denial.SOURCE, lambda: _source(theirs) == _source(mine)),",
        "source epoch",
        "A right outlives the source that it was minted for.",
    ),
    _removed(
        "destination",
        "(denial.DESTINATION, lambda: _destination(theirs) == _destination(mine)),",
        "destination epoch",
        "A right opens the next life of a destination.",
    ),
    _removed(
        "transfer",
        "(denial.TRANSFER, lambda: _transfer(theirs) == _transfer(mine)),",
        "reservation",
        "A right for one transfer serves another.",
    ),
    _removed(
        "attempt",
        "(denial.ATTEMPT, lambda: theirs.attempt == mine.attempt),",
        "attempt",
        "A right of an earlier attempt serves the next.",
    ),
    _removed(
        "route-epoch",
        "(denial.ROUTE_EPOCH, lambda: epoch == access.route_epoch),",
        "older route epoch",
        "A right of another route serves this one.",
    ),
    _removed(
        "abi",
        "(denial.ABI, lambda: capability.abi_digest == access.abi_digest),",
        "abi",
        "Bytes move between workers that decode them differently.",
    ),
    _removed(
        "direction",
        "(denial.DIRECTION, lambda: capability.direction == access.direction),",
        "direction",
        "A right to read becomes a right to write.",
    ),
    _removed(
        "regions",
        "(denial.REGIONS, lambda: covers(capability.regions, access.regions)),",
        "one block less",
        "Blocks that were never granted are written.",
    ),
    _removed(
        "bytes",
        "(denial.BYTES, lambda: 0 < access.nbytes <= capability.max_nbytes),",
        "one byte less",
        "More bytes move than were granted.",
    ),
    Mutant(
        name="capability-ignores-revocation",
        file=_FILE,
        line="(denial.REVOKED, lambda: epoch >= self.revoked_below),",
        planted="",
        why="A revoked route still opens memory.",
        killer=ByTests(
            (f"{_GATE}::test_a_route_epoch_below_the_floor_is_revoked_and_the_floor_never_falls",)
        ),
    ),
    Mutant(
        name="capability-ignores-expiry",
        file=_FILE,
        line="(denial.EXPIRED, lambda: not issuer.clock.is_past(expires_us, now_us)),",
        planted="",
        why="A right that was held back is good for ever.",
        killer=ByTests(
            (f"{_GATE}::test_expiry_is_judged_in_the_issuers_clock_whatever_this_clock_says",)
        ),
    ),
    Mutant(
        name="capability-ignores-signature",
        file=_FILE,
        line="if not self._verifier.verify(capability.issuer, signed_bytes(capability), "
        "signed.signature):",
        planted="if False:",
        why="Anybody may write a right.",
        killer=Vopr(("rights-are-live",), seeds=(13,)),
    ),
    Mutant(
        name="capability-spent-twice",
        file=_FILE,
        line="(denial.NONCE, lambda: not issuer.ledger.is_spent(capability.nonce)),",
        planted="(denial.NONCE, lambda: issuer.ledger._spent.discard(capability.nonce) or True),",
        why="A right that was used once opens memory again.",
        killer=ByTests((f"{_GATE}::test_a_nonce_is_spent_once",)),
    ),
    Mutant(
        name="nonce-never-spent",
        file=_FILE,
        line="issuer.ledger.spend(capability.nonce, capability.expires_us)",
        planted="pass",
        why="Nothing remembers which rights were used.",
        killer=ByTests((f"{_GATE}::test_a_nonce_is_spent_once",)),
    ),
    Mutant(
        name="nonce-spent-by-a-denial",
        file=_FILE,
        line="return denial",
        planted="issuer.ledger.spend(capability.nonce, capability.expires_us); return denial",
        why="Whoever presents a right wrongly destroys it for its owner.",
        killer=_gate("tenant"),
    ),
    Mutant(
        name="nonce-forgotten-early",
        file="protocol/nonces.py",
        line="while self._by_expiry and clock.is_past(self._by_expiry[0][0], now_us):",
        planted="while self._by_expiry:",
        why="A spent nonce is forgotten while its capability is still good.",
        killer=ByTests(
            (f"{_GATE}::test_a_full_ledger_refuses_and_forgets_only_what_has_certainly_expired",)
        ),
    ),
    Mutant(
        name="issuer-clock-overestimated",
        file="protocol/nonces.py",
        line="return self._bound_us + elapsed_us - drift_us",
        planted="return self._bound_us + elapsed_us + drift_us",
        why="Drift between two hosts expires good rights.",
        killer=ByTests((f"{_GATE}::test_the_issuers_clock_is_never_overestimated",)),
    ),
    Mutant(
        name="signature-without-domain",
        file=_FILE,
        line="return _DOMAIN + msgspec.msgpack.encode(capability)",
        planted="return msgspec.msgpack.encode(capability)",
        why="A signature over something else may pass for a capability.",
        killer=ByTests(
            (f"{_GATE}::test_the_signed_bytes_are_the_domain_and_the_message_pack_of_every_field",)
        ),
    ),
    Mutant(
        name="floor-falls",
        file=_FILE,
        line="if route_epoch <= self.revoked_below:",
        planted="if route_epoch == self.revoked_below:",
        why="A late, older revocation lowers the floor again.",
        killer=ByTests(
            (f"{_GATE}::test_a_route_epoch_below_the_floor_is_revoked_and_the_floor_never_falls",)
        ),
    ),
)

_ENDS = (
    Mutant(
        name="unauthorized-chunk-accepted",
        file="nodes/destination_rights.py",
        line="if incoming.is_authorized or incoming.transfer.state is TransferState.ABORTING:",
        planted="if True:",
        why="A chunk counts whether or not its sender had the right.",
        killer=ByTests(
            (f"{_SIDES}::test_a_chunk_before_its_right_is_counted_and_ends_the_transfer_unread",)
        ),
    ),
    Mutant(
        name="move-before-authorized",
        file="nodes/source_side.py",
        line="if not job.is_authorized:",
        planted="if False:",
        why="The source writes before the destination has let it in.",
        killer=Vopr(("rights-are-live",), seeds=(3,)),
    ),
    Mutant(
        name="authorized-at-birth",
        file="nodes/source_job.py",
        line="self.is_authorized = not self.grant.num_remote_blocks",
        planted="self.is_authorized = True",
        why="A source believes that it is let in without asking.",
        killer=Vopr(
            (
                "rights-are-live",
                "liveness",
            ),
            seeds=(3,),
        ),
    ),
    Mutant(
        name="second-capability-accepted",
        file="nodes/destination_rights.py",
        line="if incoming.capability is not None:",
        planted="if False:",
        why="A second right replaces the one that was spent.",
        killer=ByTests((f"{_SIDES}::test_another_capability_for_an_authorized_transfer_ends_it",)),
    ),
    Mutant(
        name="offer-outside-the-regions",
        file="nodes/destination_rights.py",
        line="if covers(incoming.capability.capability.regions, blocks):",
        planted="if True:",
        why="A reader reads blocks of the source that nobody granted.",
        killer=ByTests(
            (f"{_SIDES}::test_an_offer_must_stay_within_what_was_granted_of_the_source",)
        ),
    ),
    Mutant(
        name="prefill-without-capability",
        file="nodes/source_rights.py",
        line="if not message.grant.num_remote_blocks:",
        planted="if not message.grant.num_remote_blocks or message.capability is None:",
        why="A prefill without any right is computed and sent.",
        killer=ByTests(
            (f"{_SIDES}::test_a_prefill_without_the_capability_that_it_needs_is_denied",)
        ),
    ),
    Mutant(
        name="revocation-spares-the-source",
        file="nodes/worker.py",
        line="self.source.aborts.on_revoked(route_epoch)",
        planted="pass",
        why="A revoked source goes on sending until its peer stops it.",
        killer=ByTests(
            (f"{_SIDES}::test_revoked_routes_end_a_running_job_and_refuse_a_late_prefill",)
        ),
    ),
    Mutant(
        name="revocation-spares-the-destination",
        file="nodes/worker.py",
        line="self.destination.aborts.on_revoked(route_epoch)",
        planted="pass",
        why="A revoked transfer is still published.",
        killer=ByTests(
            (f"{_SIDES}::test_revoked_routes_end_what_is_not_published_and_refuse_what_comes_late",)
        ),
    ),
    Mutant(
        name="regions-of-another-life",
        file="core/capability.py",
        line="for start, end in merged.get((region.worker_id, region.worker_epoch), ())",
        planted="for (worker_id, _), ends in merged.items() "
        "if worker_id == region.worker_id for start, end in ends",
        why="Blocks granted in one life of a worker are open in the next.",
        killer=_gate("region of another life"),
    ),
    Mutant(
        name="minted-for-every-block",
        file="nodes/route_rights.py",
        line="if grant.direction is Direction.PULL:",
        planted="if True:",
        why="A push gets a right to the whole pool of its source.",
        killer=ByTests(
            ("tests/nodes/test_capability.py::test_the_router_mints_exactly_what_was_granted",)
        ),
    ),
)

MUTANTS = (*_CHECKS, *_ENDS)
