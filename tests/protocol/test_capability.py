"""The gate: every field by name, expiry in the issuer's clock, nonces spent once and remembered."""

import hashlib
import pickle
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from baton.core.capability import Capability, Region, SignedCapability, covers, regions_of
from baton.core.ids import Direction
from baton.errors import ConfigError
from baton.protocol.capability import (
    Access,
    CapabilityDenial,
    CapabilityGate,
    CapabilityIssuer,
    signed_bytes,
)
from baton.protocol.nonces import IssuerClock
from baton.protocol.signing import Ed25519Signer, Ed25519Verifier, HmacKey
from tests.protocol.handoff import FENCE, GRANT, KEY, LAYOUT, TTL_US, capability, replace, sign

NOW_US = 77
HONEST = capability()
FLOOR = 2


def access(signed: SignedCapability = HONEST) -> Access:
    """What the reservation asks for; the honest capability allows exactly this."""
    held = signed.capability
    return Access(
        fence=held.fence,
        route_epoch=held.route_epoch,
        direction=held.direction,
        regions=held.regions,
        nbytes=held.max_nbytes,
        abi_digest=held.abi_digest,
    )


def gate(**changes) -> CapabilityGate:
    made = CapabilityGate(KEY, max_ttl_us=TTL_US, **changes)
    made.revoke_below(FLOOR)
    return made


def fence(**changes) -> dict[str, object]:
    return {"fence": replace(FENCE, **changes)}


def region(**changes) -> dict[str, object]:
    return {"regions": (replace(HONEST.capability.regions[0], **changes),)}


NBYTES = HONEST.capability.max_nbytes
MUTATIONS = {
    "no ttl": ({"ttl_us": 0}, "ttl"),
    "negative ttl": ({"ttl_us": -1}, "ttl"),
    "ttl above the limit": ({"ttl_us": TTL_US + 1}, "ttl"),
    "tenant": (fence(tenant_id="t2"), "tenant"),
    "source": (fence(source_id="p1"), "source"),
    "source epoch": (fence(source_epoch=4), "source"),
    "destination": (fence(destination_id="d1"), "destination"),
    "destination epoch": (fence(destination_epoch=8), "destination"),
    "request": (fence(request_id="r2"), "transfer"),
    "generation": (fence(generation=4), "transfer"),
    "reservation": (fence(reservation_id=12), "transfer"),
    "attempt": (fence(attempt=1), "attempt"),
    "newer route epoch": ({"route_epoch": 3}, "route_epoch"),
    "older route epoch": ({"route_epoch": 1}, "route_epoch"),
    "abi": ({"abi_digest": "0" * 32}, "abi"),
    "direction": ({"direction": Direction.PULL}, "direction"),
    "no region": ({"regions": ()}, "regions"),
    "one block less": (region(num_blocks=1), "regions"),
    "blocks beside": (region(block_start=39), "regions"),
    "region of another worker": (region(worker_id="p0"), "regions"),
    "region of another life": (region(worker_epoch=6), "regions"),
    "negative region": (region(num_blocks=-2), "regions"),
    "one byte less": ({"max_nbytes": NBYTES - 1}, "bytes"),
    "no byte": ({"max_nbytes": 0}, "bytes"),
}


def test_the_honest_capability_is_admitted():
    assert gate().admit(HONEST, access(), NOW_US) is None


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_capability_wrong_in_one_field_is_denied_by_name_and_spends_nothing(name):
    changes, reason = MUTATIONS[name]
    held = gate()
    assert held.admit(capability(**changes), access(), NOW_US) == reason
    assert held.num_nonces == 0
    assert held.admit(HONEST, access(), NOW_US) is None, "the same nonce was not spent"


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_field_changed_after_signing_is_denied_by_its_signature(name):
    changes, _ = MUTATIONS[name]
    forged = replace(HONEST, capability=replace(HONEST.capability, **changes))
    held = gate()
    assert held.admit(forged, access(), NOW_US) == "signature"
    assert held.num_nonces == 0


def test_every_field_of_a_capability_is_covered_by_its_signature():
    changes = {
        "issuer": "router/other",
        "fence": replace(FENCE, generation=9),
        "route_epoch": 9,
        "direction": Direction.PULL,
        "regions": (),
        "max_nbytes": 1 << 60,
        "abi_digest": "",
        "issued_us": 0,
        "ttl_us": 1,
        "nonce": 99,
    }
    assert set(changes) == set(Capability.__struct_fields__)
    for name, value in changes.items():
        forged = replace(HONEST, capability=replace(HONEST.capability, **{name: value}))
        assert gate().admit(forged, access(), NOW_US) == "signature", name


def test_wrong_signatures_and_strangers_are_denied():
    for signature in (b"", b"x", HONEST.signature[:-1], HONEST.signature + b"\0", bytes(32)):
        assert gate().admit(replace(HONEST, signature=signature), access(), NOW_US) == "signature"
    stranger = HmacKey("router/other", b"other" * 8)
    theirs = replace(HONEST.capability, issuer=stranger.issuer)
    signed = SignedCapability(capability=theirs, signature=stranger.sign(signed_bytes(theirs)))
    assert gate().admit(signed, access(), NOW_US) == "signature"
    renamed = capability(issuer="router/other")
    assert gate().admit(renamed, access(), NOW_US) == "signature", "the right key, another name"


def test_a_request_for_nothing_or_for_more_is_denied_whatever_the_capability_says():
    for nbytes in (0, -1, NBYTES + 1):
        assert gate().admit(HONEST, replace(access(), nbytes=nbytes), NOW_US) == "bytes"
    wide = Region(worker_id="d0", worker_epoch=7, block_start=40, num_blocks=3)
    assert gate().admit(HONEST, replace(access(), regions=(wide,)), NOW_US) == "regions"


def test_a_route_epoch_below_the_floor_is_revoked_and_the_floor_never_falls():
    held = gate()
    assert held.revoke_below(3) and not held.revoke_below(3) and not held.revoke_below(2)
    assert held.revoked_below == 3
    assert held.admit(HONEST, access(), NOW_US) == "revoked"
    newer = capability(route_epoch=3)
    assert held.admit(newer, access(newer), NOW_US) is None


def test_checks_are_made_in_the_order_of_the_list():
    """Each capability is wrong in everything from one check on; the first one is named."""
    order = [
        {"ttl_us": 0},
        fence(tenant_id="t2"),
        fence(source_id="p1"),
        fence(destination_id="d1"),
        fence(request_id="r2"),
        fence(attempt=1),
        {"route_epoch": 3},
        {"abi_digest": ""},
        {"direction": Direction.PULL},
        {"regions": ()},
        {"max_nbytes": 0},
    ]
    named = []
    for start in range(len(order)):
        changes: dict[str, object] = {}
        together = FENCE
        for change in order[start:]:
            if "fence" in change:
                theirs = change["fence"]
                fields = {n: getattr(theirs, n) for n in FENCE.__struct_fields__}
                mine = {n: getattr(FENCE, n) for n in FENCE.__struct_fields__}
                together = replace(together, **{n: v for n, v in fields.items() if v != mine[n]})
                change = {"fence": together}
            changes |= change
        named.append(gate().admit(capability(**changes), access(), NOW_US))
    assert named == [
        "ttl", "tenant", "source", "destination", "transfer", "attempt", "route_epoch",
        "abi", "direction", "regions", "bytes",
    ]  # fmt: skip


# -- nonces ----------------------------------------------------------------------------------------


def test_a_nonce_is_spent_once():
    held = gate()
    assert held.admit(HONEST, access(), NOW_US) is None
    assert held.admit(HONEST, access(), NOW_US) == "nonce"
    assert held.admit(capability(nonce=2), access(), NOW_US) is None


def test_a_full_ledger_refuses_and_forgets_only_what_has_certainly_expired():
    held = gate(max_nonces=2)
    for nonce in (1, 2):
        assert held.admit(capability(nonce=nonce), access(), NOW_US) is None
    assert held.admit(capability(nonce=3), access(), NOW_US) == "ledger_full"
    assert held.admit(capability(nonce=1), access(), NOW_US) == "nonce"
    later = capability(nonce=4, issued_us=5_000_000 + TTL_US + 50_001)
    assert held.admit(later, access(), NOW_US) is None
    assert held.num_nonces == 1
    for nonce in (1, 2, 3):
        assert held.admit(capability(nonce=nonce), access(), NOW_US) == "expired"


def test_an_issuer_never_repeats_a_nonce_and_grants_exactly_what_was_asked():
    issuer = CapabilityIssuer(KEY)
    minted = [issuer.mint(access(), now_us=5, ttl_us=9) for _ in range(50)]
    assert len({signed.capability.nonce for signed in minted}) == 50
    assert {access(signed) for signed in minted} == {access()}
    held = gate()
    assert [held.admit(signed, access(), NOW_US) for signed in minted] == [None] * 50


# -- expiry ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("local_us", [0, 12345, 10**15])
def test_expiry_is_judged_in_the_issuers_clock_whatever_this_clock_says(local_us):
    held = gate()
    assert held.admit(HONEST, access(), local_us) is None
    old = capability(nonce=2)  # issued at the same moment, presented later
    assert held.admit(old, access(), local_us + TTL_US) is None
    older = capability(nonce=3)
    late_us = local_us + TTL_US + 50_000 + TTL_US // 5000 + 100
    assert held.admit(older, access(), late_us) == "expired"
    assert held.admit(HONEST, access(), late_us) == "expired", "a replay, too"


def test_a_newer_capability_proves_that_an_older_one_has_expired():
    held = gate()
    fresh = capability(nonce=9, issued_us=5_000_000 + TTL_US + 60_000)
    assert held.admit(fresh, access(), NOW_US) is None
    assert held.admit(HONEST, access(), NOW_US) == "expired"


def test_a_refused_capability_still_tells_the_time_but_a_forged_one_does_not():
    fresh = capability(nonce=9, issued_us=5_000_000 + TTL_US + 60_000)
    forged = replace(fresh, signature=bytes(32))
    held = gate()
    assert held.admit(forged, access(), NOW_US) == "signature"
    assert held.admit(HONEST, access(), NOW_US) is None
    held = gate()
    assert held.admit(fresh, replace(access(), nbytes=0), NOW_US) == "bytes"
    assert held.admit(HONEST, access(), NOW_US) == "expired"


@given(
    offset_us=st.integers(-(10**12), 10**12),
    drift_ppm=st.integers(-200, 200),
    samples=st.lists(st.tuples(st.integers(1, 10**7), st.integers(0, 10**6)), max_size=8),
    wait_us=st.integers(0, 10**9),
)
@example(offset_us=0, drift_ppm=-200, samples=[(1, 0)], wait_us=10**9)
@example(offset_us=0, drift_ppm=-200, samples=[(1, 0)], wait_us=10**9)
def test_the_issuers_clock_is_never_overestimated(offset_us, drift_ppm, samples, wait_us):
    """What is called past is past, for any offset, any delay and any drift within the bound."""
    clock, local_us = IssuerClock(), 0

    def issuer_us() -> int:
        return offset_us + local_us + local_us * drift_ppm // 1_000_000

    for gap_us, delay_us in samples:
        issued_us = issuer_us()
        local_us += delay_us
        clock.sample(issued_us, local_us)
        local_us += gap_us
    local_us += wait_us
    assert not clock.is_past(issuer_us(), local_us)
    if samples:
        slack_us = 50_000 + 2 * local_us * 400 // 1_000_000 + samples[-1][1] + 10
        assert clock.is_past(issuer_us() - slack_us, local_us), "and it does not stand still"


@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=10),
    st.integers(0, 10**7),
)
def test_what_is_past_stays_past(samples, moment_us):
    clock, local_us, was_past = IssuerClock(), 0, False
    for gap_us, issued_us in samples:
        local_us += gap_us
        clock.sample(issued_us, local_us)
        is_past = clock.is_past(moment_us, local_us)
        assert is_past or not was_past
        was_past = is_past


def test_without_a_sample_nothing_is_past():
    assert not IssuerClock().is_past(-(10**15), 10**15)


# -- keys ------------------------------------------------------------------------------------------

SECRET = bytes(range(32))


def test_ed25519_signs_and_a_verifier_cannot_be_talked_into_another_issuer():
    signer = Ed25519Signer("router/a", SECRET)
    verifier = Ed25519Verifier("router/a", signer.public_key)
    signature = signer.sign(b"data")
    assert verifier.verify("router/a", b"data", signature)
    assert not verifier.verify("router/b", b"data", signature)
    assert not verifier.verify("router/a", b"Data", signature)
    for broken in (b"", b"x", signature[:-1], signature + b"\0", bytes(64), b"\xff" * 64):
        assert not verifier.verify("router/a", b"data", broken)
    assert not Ed25519Verifier("router/a", bytes(32)).verify("router/a", b"data", signature)


def test_what_signs_verifies_and_admits_can_be_copied_in_any_state():
    signer = Ed25519Signer("router/a", SECRET)
    verifier = Ed25519Verifier("router/a", signer.public_key)
    for key, check in ((signer, verifier), (KEY, KEY)):
        copied, checked = pickle.loads(pickle.dumps((key, check)))
        assert checked.verify(key.issuer, b"x", copied.sign(b"x"))
        assert copied.sign(b"x") == key.sign(b"x")
    issuer, held = pickle.loads(pickle.dumps((CapabilityIssuer(KEY), gate())))
    signed = issuer.mint(access(), now_us=5, ttl_us=9)
    assert held.admit(signed, access(), NOW_US) is None
    assert pickle.loads(pickle.dumps(held)).admit(signed, access(), NOW_US) == "nonce"


def test_nothing_that_is_secret_is_printed():
    signer = Ed25519Signer("router/a", SECRET)
    hidden = [
        SECRET.hex(), repr(SECRET)[2:-1], repr(KEY._secret)[2:-1],
        HONEST.signature.hex(), repr(HONEST.signature)[2:-1],
    ]  # fmt: skip
    numbered = capability(nonce=987654321)
    for value in (signer, KEY, HONEST, HONEST.capability, gate(), numbered, [numbered]):
        for text in (repr(value), str(value), f"{value}"):
            assert "987654321" not in text
            assert not any(secret in text for secret in hidden)
    assert "redacted" in repr(HONEST)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Ed25519Signer("r", b"short"), "private_key has 5 bytes; an Ed25519 key has 32"),
        (lambda: Ed25519Verifier("r", b""), "public_key has 0 bytes"),
        (lambda: HmacKey("r", b"short"), "secret of issuer 'r' has 5 bytes; use at least 16"),
    ],
)
def test_a_key_of_the_wrong_size_is_refused_without_being_shown(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    assert text in str(caught.value) and "short" not in str(caught.value)


# -- encoding --------------------------------------------------------------------------------------


def test_the_signed_bytes_are_the_domain_and_the_message_pack_of_every_field():
    data = signed_bytes(HONEST.capability)
    assert data.startswith(b"baton-capability/1\x00")
    decoded = msgspec.msgpack.decode(data[len(b"baton-capability/1\x00") :])
    assert list(decoded) == list(Capability.__struct_fields__)
    assert list(decoded["fence"]) == list(FENCE.__struct_fields__)
    assert msgspec.convert(decoded, Capability) == HONEST.capability
    wire = msgspec.msgpack.decode(msgspec.msgpack.encode(HONEST), type=SignedCapability)
    assert signed_bytes(wire.capability) == data
    assert gate().admit(wire, access(), NOW_US) is None


PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## 8.")[2].partition("## 9.")[0]


def test_the_page_lists_every_denial_in_the_order_of_the_checks():
    rows = [line.split("|")[1] for line in SECTION.splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    of_the_flow = [CapabilityDenial.MISSING, CapabilityDenial.SECOND]
    assert [*listed, *of_the_flow] == list(CapabilityDenial)
    held = gate()
    issuer = held._issuer(KEY.issuer)
    checked = [name for name, _ in held._checks(HONEST.capability, access(), issuer, NOW_US)]
    assert listed == ["signature", *checked]


def test_the_vector_of_the_page_is_true():
    signer = Ed25519Signer("router/0", bytes(range(32)))
    data = signed_bytes(
        replace(
            HONEST.capability,
            issuer="router/0",
            abi_digest="00112233445566778899aabbccddeeff",
        )
    )
    vector = re.search(r"```\n(\w+)\n(\w+)\n(\w+)\n```", SECTION)
    assert vector is not None
    digest, public_key, signature = vector.groups()
    assert "354 signed bytes" in SECTION and len(data) == 354
    assert hashlib.sha256(data).hexdigest() == digest
    assert (signer.public_key.hex(), signer.sign(data).hex()) == (public_key, signature)
    verifier = Ed25519Verifier("router/0", bytes.fromhex(public_key))
    assert verifier.verify("router/0", data, bytes.fromhex(signature))


@given(st.integers(), st.integers(), st.integers(), st.integers(), st.binary(max_size=70))
def test_no_input_makes_the_gate_raise(start, blocks, issued_us, nonce, signature):
    """Numbers as the decoder hands them out: 64 bits, either sign."""
    start, blocks, issued_us, nonce = (
        (v + 2**63) % 2**64 - 2**63 for v in (start, blocks, issued_us, nonce)
    )
    wild = Region(worker_id="", worker_epoch=-1, block_start=start, num_blocks=blocks)
    changes = {"regions": (wild,), "issued_us": issued_us, "nonce": nonce}
    for signed in (capability(**changes), replace(HONEST, signature=signature)):
        assert gate().admit(signed, access(), NOW_US) in set(CapabilityDenial) | {None}


# -- regions ---------------------------------------------------------------------------------------


def test_blocks_become_the_fewest_ranges():
    def ranges(*blocks: int) -> list[tuple[int, int]]:
        return [(r.block_start, r.num_blocks) for r in regions_of("d", 1, blocks)]

    assert ranges() == []
    assert ranges(4) == [(4, 1)]
    assert ranges(7, 3, 4, 9, 8) == [(3, 2), (7, 3)]
    assert ranges(5, 5, 6) == [(5, 2)]


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_covering_is_the_subset_relation_of_blocks(allowed, wanted):
    covered = covers(regions_of("d", 1, allowed), regions_of("d", 1, wanted))
    assert covered == (wanted <= allowed)
    assert covers(regions_of("d", 2, allowed), regions_of("d", 1, wanted)) == (not wanted)
    assert covers(regions_of("e", 1, allowed), regions_of("d", 1, wanted)) == (not wanted)


def test_the_granted_bytes_are_those_of_the_plan():
    assert NBYTES == len(GRANT.block_ids) * LAYOUT.bytes_per_block == 8 * 1024
    assert sign(HONEST.capability) == HONEST
