"""Tickets: what a signature binds, and that everything else is refused by one word."""

import base64
import stat

import msgspec
import pytest

from baton.core.ids import Direction
from baton.errors import ConfigError
from baton.integrations.vllm import keys
from baton.integrations.vllm.ticket import (
    TICKET_KEY,
    BadTicket,
    TicketIssuer,
    decode_params,
    prefill_params,
    read_ticket,
)
from baton.protocol.signing import Ed25519Signer
from tests.integrations.vllm.members import SIGNER, VERIFIER, fence, info


def mint(signer=SIGNER, **changes):
    source, destination = info("p0"), info("d0")
    return TicketIssuer(signer).mint(
        changes.pop("fence", fence(source, destination)),
        changes.pop("source", source),
        changes.pop("destination", destination),
        direction=Direction.PULL,
        route_epoch=3,
        now_us=1_000,
        deadline_ms=500,
        **changes,
    )


def test_a_ticket_reads_back_with_everything_that_it_binds():
    ticket = read_ticket(mint(max_num_tokens=33), VERIFIER)
    capability = ticket.capability.capability
    assert ticket.transfer_id == "r1.1"
    assert ticket.direction is Direction.PULL
    assert (ticket.source.worker_id, ticket.destination.worker_id) == ("p0", "d0")
    assert [region.worker_id for region in capability.regions] == ["p0", "d0"]
    assert capability.max_nbytes == 2 * info("d0").layout.bytes_per_block
    assert capability.ttl_us == 500_000


def test_a_gateway_that_restarts_mints_no_nonce_again():
    nonces = [read_ticket(mint(), VERIFIER).capability.capability.nonce for _ in range(3)]
    assert len(set(nonces)) == 3  # each from an issuer of its own, with the same key


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (None, "missing"),
        (17, "malformed"),
        ("", "malformed"),
        ("???", "malformed"),
        ("A" * 20_000, "malformed"),
        (base64.urlsafe_b64encode(msgspec.msgpack.encode(["gateway", b"", b""])).decode(), "sig"),
    ],
)
def test_what_is_no_ticket_is_refused_by_one_word(text, word):
    with pytest.raises(BadTicket, match=word):
        read_ticket(text, VERIFIER)


def test_a_ticket_of_another_key_is_refused():
    with pytest.raises(BadTicket, match="signature"):
        read_ticket(mint(Ed25519Signer("gateway", bytes(32))), VERIFIER)


def test_no_byte_of_a_ticket_can_be_changed():
    raw = base64.urlsafe_b64decode(mint())
    for position in range(len(raw)):
        changed = bytearray(raw)
        changed[position] ^= 1
        with pytest.raises(BadTicket):
            read_ticket(base64.urlsafe_b64encode(bytes(changed)).decode(), VERIFIER)


def test_a_pair_that_cannot_serve_is_refused_with_what_to_do():
    with pytest.raises(ConfigError, match="kv_role kv_consumer"):
        mint(source=info("p0", role="kv_consumer"))
    with pytest.raises(ConfigError, match="kv_role kv_producer"):
        mint(destination=info("d0", role="kv_producer"))
    with pytest.raises(ConfigError, match="epoch 8; ask the connector"):
        mint(source=info("p0", epoch=8))


def test_parameters_of_both_legs_speak_vllms_words():
    assert prefill_params("x") == {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        TICKET_KEY: "x",
    }
    legs = decode_params("x", {"remote_prefill_cached_tokens": 32, "remote_host": "evil"})
    assert legs["do_remote_prefill"] and legs["remote_prefill_cached_tokens"] == 32
    assert "remote_host" not in legs


def test_key_files_are_private_and_never_shown(tmp_path):
    member, issuer = keys.mint_keys(tmp_path / "k")
    for name, value in ((keys.MEMBER_FILE, member), (keys.ISSUER_FILE, issuer)):
        assert stat.S_IMODE((tmp_path / "k" / name).stat().st_mode) == 0o600
        assert "secret" not in repr(value) and "private" not in repr(value)
    signer = keys.load_issuer(tmp_path / "k" / keys.ISSUER_FILE).signer()
    verifier = keys.load_member(tmp_path / "k" / keys.MEMBER_FILE).verifier()
    assert read_ticket(mint(signer), verifier).source.worker_id == "p0"
    with pytest.raises(ConfigError, match="exists"):
        keys.mint_keys(tmp_path / "k")
    with pytest.raises(ConfigError, match=r"keys FOLDER"):
        keys.load_member(tmp_path / "nothing")
