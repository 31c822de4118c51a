"""What docs/protocol.md states in numbers: bytes, digests, defaults and reasons are the code's."""

import ast
import hashlib
import re
import select
import socket
from pathlib import Path

import msgspec
import numpy as np
import pytest
import xxhash
from msgspec.structs import replace

from baton.cache.prefix import block_hashes, chain_root
from baton.config import BatonConfig
from baton.core.capability import abi_digest
from baton.core.manifest import ChunkSpec, prompt_digest
from baton.core.messages import Envelope, Welcome
from baton.nodes.context import ROUTER
from baton.nodes.decode_side import MAX_DONE_RETRIES
from baton.runtime import channel
from baton.runtime.dataplane import ArenaDescriptor, RegionDescriptor, ShmRegion, notify
from baton.runtime.dataplane.checksum import checksum, copy_and_checksum
from baton.runtime.dataplane.nixl import notes
from baton.runtime.dataplane.notify import Greeting, NotifyReceiver, NotifySender
from baton.runtime.dataplane.plane import Finished, NixlRegion, PlaneFault
from baton.runtime.dataplane.segments import is_segment_name
from baton.runtime.regions import Side, local_runs
from tests.protocol.handoff import IDENTITY, LAYOUT, REQUEST

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
TOKENS = REQUEST.prompt_token_ids
TOKEN = bytes(range(16))
CHUNK = bytes(index % 251 for index in range(1024))
MOVED = Finished(handle=1, reservation_id=11, chunk_id=3, nbytes=1024, checksum=0)


def section(number: int) -> str:
    found = PAGE.partition(f"\n## {number}. ")[2].partition("\n## ")[0]
    assert found, number
    return found


def block_after(words: str) -> list[str]:
    """The lines of the first code block after some words of the page."""
    assert PAGE.count(words) == 1, words
    found = re.search(r"```\n(.*?)\n```", PAGE.partition(words)[2], re.DOTALL)
    assert found is not None
    return found[1].split("\n")


def vector(name: str) -> tuple[str, str]:
    """A vector's input and its digest, as they stand on the page."""
    before, result = block_after(f"<!-- vector: {name} -->")
    return before, result


def blake(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


# -- control channel ---------------------------------------------------------------------------


def test_the_first_frame_is_the_one_that_the_channel_sends():
    (frame,) = block_after("<!-- generated: compatibility -->")
    assert frame.encode("ascii") == channel.COMPATIBILITY
    assert re.fullmatch(r"baton/1 [0-9a-f]{32}", frame)


def test_the_second_frame_of_the_page_is_the_envelope_that_it_says():
    data = bytes.fromhex(block_after("The `Welcome` of epoch 3")[0])
    envelope = Envelope(sender_id=ROUTER, sender_epoch=0, message=Welcome(epoch=3))
    assert ROUTER == "router"
    assert msgspec.msgpack.encode(envelope) == data
    assert msgspec.msgpack.decode(data, type=Envelope) == envelope


def test_keys_come_in_any_order_and_unknown_ones_are_ignored():
    loose = {"message": {"new": 1, "epoch": 3, "type": "welcome"}, "sender_epoch": 0, "more": []}
    data = msgspec.msgpack.encode({**loose, "sender_id": "router"})
    assert msgspec.msgpack.decode(data, type=Envelope).message == Welcome(epoch=3)


# -- digests -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("layout", LAYOUT.digest),
        ("model identity", IDENTITY.digest),
        ("abi", abi_digest(IDENTITY, LAYOUT)),
    ],
)
def test_a_json_digest_of_the_page_is_over_the_bytes_of_the_page(name, ours):
    text, result = vector(name)
    assert blake(text.encode()) == result == ours


def test_the_prompt_digest_of_the_page_is_over_its_bytes():
    data, result = vector("prompt")
    assert bytes.fromhex(data) == np.array(TOKENS, dtype="<u4").tobytes()
    assert blake(bytes.fromhex(data)) == result == prompt_digest(TOKENS)


def test_the_prefix_chain_of_the_page_is_ours():
    root = chain_root(IDENTITY, LAYOUT, "t1", "pepper")
    hashes = block_hashes(root, TOKENS, LAYOUT.block_size)
    assert len(hashes) == 2
    parent = ""
    names = ("chain root", "chain block 0", "chain block 1")
    for name, ours in zip(names, [root, *hashes], strict=True):
        data, result = vector(name)
        assert data.startswith(parent)
        assert blake(bytes.fromhex(data)) == result == ours.hex()
        parent = result


def test_the_chunk_checksum_of_the_page_is_xxh3_of_its_bytes():
    found = re.search(r"`i mod 251`, as an integer: `(\d+)`", PAGE)
    assert found is not None
    stated, data = int(found[1]), np.frombuffer(CHUNK, dtype=np.uint8)
    assert xxhash.xxh3_64_intdigest(CHUNK, seed=0) == stated == checksum([data])
    runs = [data[:3], data[3:900], data[900:]]
    copies = [np.zeros_like(run) for run in runs]
    assert copy_and_checksum(copies, runs) == stated
    assert b"".join(copy.tobytes() for copy in copies) == CHUNK


# -- data plane --------------------------------------------------------------------------------


def test_the_region_descriptor_of_the_page_is_the_one_that_it_says():
    data = bytes.fromhex(block_after("A vector, 167 bytes")[0])
    name = "baton-1-2-3-d0-" + 32 * "0"
    arena = ArenaDescriptor(name=name, nbytes=65536, worker_id="d0", epoch=7)
    region = ShmRegion(arena=arena, offset=0, nbytes=65536, address="baton-1-00", token=TOKEN)
    assert is_segment_name(name)
    assert len(data) == 167
    assert msgspec.msgpack.encode(region) == data
    assert msgspec.msgpack.decode(data, type=RegionDescriptor) == region


def test_the_nixl_region_and_note_of_the_page_are_those_that_it_says():
    lines = block_after("A vector of such a region, 120 bytes")
    region_data, note = (bytes.fromhex(line) for line in lines)
    region = NixlRegion(
        worker_id="d0",
        epoch=7,
        host="0f0e",
        agent="baton-00",
        address=1 << 20,
        nbytes=65536,
        metadata=b"\x01\x02\x03",
        token=TOKEN,
    )
    assert len(region_data) == 120
    assert msgspec.msgpack.encode(region) == region_data
    assert msgspec.msgpack.decode(region_data, type=RegionDescriptor) == region
    record = replace(MOVED, checksum=checksum([np.frombuffer(CHUNK, np.uint8)]))
    assert notes.pack(TOKEN, [record]) == note
    assert f"1 to {notes.RECORDS_PER_NOTE} of them" in section(13)
    (received,) = notes.unpack(note, TOKEN, region)
    assert (received.reservation_id, received.chunk_id, received.nbytes) == (11, 3, 1024)


def test_a_sender_that_knows_only_the_page_is_understood():
    """A plain socket and the bytes of the page, against the real receiver."""
    greeting, record = (bytes.fromhex(line) for line in block_after("checksum of section 14."))
    receiver = NotifyReceiver(select.epoll())
    receiver.token = TOKEN
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sender:
        sender.connect(b"\0" + receiver.address.encode())
        sender.send(greeting)
        sender.send(record * 2)
        got = receiver.receive(lambda worker_id, epoch: (worker_id, epoch) == ("p0", 5))
    assert [(r.reservation_id, r.chunk_id, r.nbytes) for r in got] == [(11, 3, 1024)] * 2
    assert {r.checksum for r in got} == {xxhash.xxh3_64_intdigest(CHUNK)}
    assert (got[0].source_id, got[0].source_epoch, got[0].framing_nbytes) == ("p0", 5, 32)
    receiver.close()


def test_a_receiver_that_knows_only_the_page_understands_our_sender():
    greeting, record = (bytes.fromhex(line) for line in block_after("checksum of section 14."))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        address = f"baton-test-{id(listener)}"
        listener.bind(b"\0" + address.encode())
        listener.listen()
        sender = NotifySender(address, Greeting(TOKEN, "p0", 5))
        moved = msgspec.structs.replace(MOVED, checksum=xxhash.xxh3_64_intdigest(CHUNK))
        assert sender.try_send([moved])
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(4096) == greeting
            assert connection.recv(4096) == record
        sender.close()


def test_a_block_lies_where_the_page_says():
    layer, num_blocks, blocks = 2, 16, (7, 9)
    size = LAYOUT.block_size * LAYOUT.num_kv_heads * LAYOUT.head_dim * (4 + 4)
    chunk = ChunkSpec(
        chunk_id=0, layer_start=layer, num_layers=1, block_start=0, num_blocks=2, nbytes=2 * size
    )
    runs = [((layer * num_blocks + block) * size, size) for block in blocks]
    assert "`offset + (l * num_blocks + b) * layer_block_nbytes`" in section(13)
    assert list(local_runs(LAYOUT, chunk, Side(blocks, num_blocks))) == runs


def test_the_faults_and_bounds_of_the_data_plane_are_on_the_page():
    text = section(13)
    assert [fault for fault in PlaneFault if f"`{fault}`" not in text.replace("\n", " ")] == []
    assert f"1 to {notify.RECORDS_PER_PACKET} records" in text
    assert f"takes {notify._MAX_CONNECTIONS} connections" in text
    assert f"at most {MAX_DONE_RETRIES} times" in section(7)
    assert f"or for {channel._HANDSHAKE_MS // 1000} s" in section(1)
    assert f"most {channel.MAX_MESSAGE_NBYTES >> 20} MiB" in section(1)


# -- defaults and reasons ----------------------------------------------------------------------


def test_the_defaults_of_the_page_are_those_of_the_configuration():
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \| (\w+) \|", section(1), re.MULTILINE)
    assert len(rows) >= 12
    config = BatonConfig()
    for part, name, value in rows:
        assert str(getattr(getattr(config, part), name)).lower() == value, f"{part}.{name}"


SPEAKS = {"abort", "fail", "cancel_attempt", "on_failed"}
"""Calls whose second argument is a reason."""


def reasons_in(path: Path) -> set[str]:
    """Texts that the nodes give as a reason, up to what varies in them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            texts = [word.value for word in node.keywords if word.arg == "reason"]
            if isinstance(node.func, ast.Attribute) and node.func.attr in SPEAKS:
                texts += node.args[1:2]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "reason":
            texts = [node.value]
        elif isinstance(node, ast.FunctionDef) and node.name == "_refusal":
            texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value]
        else:
            continue
        for text in texts:
            found |= {literal for part in branches(text) for literal in first_words(part)}
    return found - {""}


def branches(text: ast.expr) -> list[ast.expr]:
    return [text.body, text.orelse] if isinstance(text, ast.IfExp) else [text]


def first_words(text: ast.expr) -> set[str]:
    if isinstance(text, ast.JoinedStr):
        fixed = [part.value for part in text.values if isinstance(part, ast.Constant)]
        return {str(fixed[0]).strip().rstrip(":_")}
    return {text.value} if isinstance(text, ast.Constant) and isinstance(text.value, str) else set()


def test_every_reason_that_a_node_gives_is_on_the_page():
    said = set().union(*(reasons_in(path) for path in (ROOT / "src/baton/nodes").glob("*.py")))
    assert {"not_reserved", "source_lost", "engine_error", "capability", "no_kv_capacity"} <= said
    inner = {"stop", "cancelled"}  # finish reasons of a sequence
    prose = re.sub(r"```.*?```", "", section(4) + section(12), flags=re.DOTALL)
    texts = re.findall(r"`([^`]+)`", prose)
    missing = [r for r in said - inner if not any(r in text for text in texts)]
    assert missing == []


def test_every_reason_of_the_page_is_in_the_code():
    code = "".join(path.read_text() for path in (ROOT / "src" / "baton").rglob("*.py"))
    tables = section(12).partition("### Why a worker denies")[2]
    cells = [line.split("|")[1] for line in tables.splitlines() if line.startswith("| `")]
    names = {name for cell in cells for name in re.findall(r"`(\w+)", cell)}
    built = {"capability_", "duplicate_publication", "stale_publication", "N"}
    messages = {"SourceFailed", "AbortTransfer", "Cancel", "Aborted"}
    composed = {"capability_expired"}
    assert len(names) > 30
    gone = [n for n in names - built - messages - composed if not re.search(rf'["f]?"{n}\b', code)]
    assert gone == []
