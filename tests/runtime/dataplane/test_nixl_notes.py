"""A note counts only with the receiver's token, from the agent of a connected life."""

import pytest

from baton.runtime.dataplane.nixl import is_installed
from baton.runtime.dataplane.nixl.notes import BadNote, num_records, pack, unpack
from baton.runtime.dataplane.plane import Finished, NixlRegion

from .harness import order

TOKEN = b"t" * 16
SENDER = NixlRegion(
    worker_id="p0",
    epoch=5,
    host="h",
    agent="a",
    address=4096,
    nbytes=8,
    metadata=b"",
    token=b"x" * 16,
)


@pytest.fixture
def kind() -> str:
    """The tests below that need workers are of this plane."""
    return "nixl"


def test_records_come_back_under_the_name_of_the_sender():
    moved = [Finished(handle=1, reservation_id=2, chunk_id=c, nbytes=4, checksum=9) for c in (0, 1)]
    note = pack(TOKEN, moved)
    assert num_records(note) == 2
    received = unpack(note, TOKEN, SENDER)
    assert [(one.source_id, one.source_epoch, one.chunk_id) for one in received] == [
        ("p0", 5, 0),
        ("p0", 5, 1),
    ]
    assert unpack(pack(TOKEN, ()), TOKEN, SENDER) == []


@pytest.mark.parametrize("note", [b"", b"short", pack(b"y" * 16, ()), TOKEN + b"torn"])
def test_bad_notes_are_refused(note):
    with pytest.raises(BadNote):
        unpack(note, TOKEN, SENDER)


@pytest.mark.skipif(not is_installed(), reason="NIXL is not installed: pip install 'kvbaton[nixl]'")
def test_strangers_and_wrong_tokens_are_counted(workers):
    destination, stranger, liar = (workers(name) for name in ("destination", "stranger", "liar"))
    for worker in (stranger, liar):
        worker.plane.connect(destination.descriptor)
    destination.plane.connect(liar.descriptor)
    stranger.plane.put(order(destination.descriptor, ((0, 0, 64),)))
    assert stranger.take(1)[0].error is None
    wrong = pack(b"y" * 16, ())
    liar.plane._thread.call(lambda agent: agent.notify(destination.descriptor.agent, wrong))
    liar.plane.put(order(destination.descriptor, ((0, 0, 64),), chunk_id=3))
    assert [one.chunk_id for one in destination.take(1)] == [3]
    stats = destination.plane.stats()
    assert (stats.dropped_notifications, stats.refused_connections) == (1, 1)
