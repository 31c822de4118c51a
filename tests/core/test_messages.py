"""The vocabulary on the wire: tagged, typed, fenced, and the same after a round trip."""

import typing

import msgspec
import pytest

from baton.core import messages
from baton.core.ids import Fence
from baton.core.messages import CreditReturn, Envelope, Message, Reserved, fence_of
from tests.protocol.handoff import (
    FENCE,
    GRANT,
    REQUEST,
    capability,
    replace,
    seal,
    source_transfer,
)

KINDS = typing.get_args(Message)
UNFENCED = {
    "Hello",
    "Welcome",
    "Refused",
    "PeerUp",
    "PeerDown",
    "Load",
    "Renew",
    "TokenRows",
    "RevokeRoutes",
    "CacheChanges",
    "CacheReplay",
    "CacheHoldings",
    "ClearCache",
    "Traced",
}


def test_every_message_type_is_in_the_union_and_has_its_own_tag():
    defined = {
        value
        for value in vars(messages).values()
        if isinstance(value, type)
        and issubclass(value, messages._Message)
        and value is not messages._Message
    }
    assert defined == set(KINDS)
    tags = [kind.__struct_config__.tag for kind in KINDS]
    assert len(set(tags)) == len(tags) == 34
    assert all(isinstance(tag, str) for tag in tags)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_messages_are_frozen_keyword_only_documented_and_fenced(kind):
    config = kind.__struct_config__
    assert config.frozen
    assert kind.__doc__ and " to " in kind.__doc__.split(":")[0], "says who sends it to whom"
    fenced = {"fence", "grant"} & set(kind.__struct_fields__)
    assert bool(fenced) == (kind.__name__ not in UNFENCED)


def test_the_fence_is_found_before_the_kind_is_read():
    assert fence_of(CreditReturn(fence=FENCE, chunk_ids=(1,))) == FENCE
    assert fence_of(Reserved(grant=GRANT)) == FENCE
    assert fence_of(messages.Renew(fences=(FENCE,))) is None
    assert fence_of(messages.PeerDown(worker_id="p0", epoch=1)) is None


def test_a_message_survives_the_wire():
    sent = [
        messages.Reserve(
            fence=FENCE,
            request=REQUEST,
            output_token_ids=(1, 2),
            direction=GRANT.direction,
            schedule=GRANT.schedule,
            route_epoch=GRANT.route_epoch,
        ),
        messages.Prefill(fence=FENCE, request=REQUEST, output_token_ids=(), grant=GRANT),
        messages.Present(fence=FENCE, capability=capability()),
        messages.RevokeRoutes(route_epoch=4),
        messages.Seal(fence=FENCE, manifest=seal(source_transfer())),
        messages.Renew(fences=(FENCE, replace(FENCE, generation=9))),
    ]
    for message in sent:
        envelope = Envelope(sender_id="p0", sender_epoch=5, message=message)
        data = msgspec.msgpack.encode(envelope)
        assert msgspec.msgpack.decode(data, type=Envelope) == envelope


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "nonsense"},
        {"type": "credit_return", "chunk_ids": [1]},
        {"type": "credit_return", "fence": msgspec.to_builtins(FENCE), "chunk_ids": ["one"]},
        {"type": "done_ack", "fence": {**msgspec.to_builtins(FENCE), "generation": None}},
        {},
    ],
    ids=["unknown tag", "no fence", "wrong type", "null field", "no tag"],
)
def test_a_malformed_message_is_refused_by_the_decoder(broken):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(broken, Message)


def test_a_transfer_is_named_by_request_and_generation():
    assert FENCE.transfer_id == "r1.3"
    assert not FENCE.colocated
    assert replace(FENCE, source_id="d0").colocated
    assert set(Fence.__struct_fields__) >= {
        "tenant_id",
        "request_id",
        "generation",
        "attempt",
        "source_epoch",
        "destination_epoch",
        "reservation_id",
    }
