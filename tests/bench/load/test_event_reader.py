"""Server-sent events in every way that TCP and servers cut them."""

import random
from itertools import pairwise

import pytest

from baton.bench.load.chunk import decode_chunk, describe_body
from baton.bench.load.sse import EventReader

STREAM = (
    b": hello\n\ndata: one\n\nevent: x\ndata:two\ndata: more\nid: 7\n\ndata: {\n\ndata: [DONE]\n\n"
)
EVENTS = [b"one", b"two\nmore", b"{", b"[DONE]"]


def read(pieces):
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_any_cut_gives_the_same_events(newline):
    stream = STREAM.replace(b"\n", newline)
    assert read([stream]) == EVENTS
    for cut in range(1, len(stream)):
        assert read([stream[:cut], stream[cut:]]) == EVENTS, cut
    assert read([bytes([one]) for one in stream]) == EVENTS


def test_random_cuts_of_many_events():
    chance = random.Random(5)
    events = [b'{"n": %d, "text": "a b"}' % index for index in range(200)]
    stream = b"".join(b"data: " + one + b"\n\n" for one in events)
    for _ in range(50):
        cuts = sorted({0, len(stream), *chance.sample(range(len(stream)), 40)})
        pieces = [stream[a:b] for a, b in pairwise(cuts)]
        assert read(pieces) == events


def test_an_event_without_its_empty_line_is_not_given():
    assert read([b"data: half\n"]) == []


@pytest.mark.parametrize(
    ("data", "has_content"),
    [
        (b'{"choices":[{"text":"a"}]}', True),
        (b'{"choices":[{"text":""}]}', False),
        (b'{"choices":[{"delta":{"role":"assistant","content":""}}]}', False),
        (b'{"choices":[{"delta":{"content":"a"}}]}', True),
        (b'{"choices":[{"delta":{"reasoning_content":"a"}}]}', True),
        (b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}', False),
    ],
)
def test_only_output_is_content(data, has_content):
    assert decode_chunk(data).has_content is has_content


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"no","code":"bad"}}',
        b'{"object":"error","message":"no","code":"bad"}',
    ],
)
def test_both_forms_of_an_error_are_read(body):
    assert describe_body(body) == "bad no"
