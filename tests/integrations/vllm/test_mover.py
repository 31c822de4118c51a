"""Two real connectors without vLLM: threads, encrypted sockets, NIXL, foreign memory."""

import socket
import threading
import time

import numpy as np
import pytest

from baton.core.ids import Direction
from baton.core.request import Token
from baton.errors import ConfigError
from baton.integrations.vllm.info import ConnectorInfo, Member
from baton.integrations.vllm.keys import mint_keys
from baton.integrations.vllm.memory import LayerView
from baton.integrations.vllm.orders import Hold, Load, StepOrders, Stream
from baton.integrations.vllm.process import this_host
from baton.integrations.vllm.settings import Settings, read_settings
from baton.integrations.vllm.status import ask_handoffs, ask_status, give_up
from baton.integrations.vllm.ticket import TicketIssuer, read_ticket
from baton.integrations.vllm.worker_side import WorkerSide, new_epoch
from baton.runtime.dataplane.nixl import is_installed
from tests.integrations.vllm.members import FACTS, IDENTITY, LAYOUT, fence

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed(), reason="NIXL is missing: pip install 'kvbaton[nixl]'"),
]
TOKENS = tuple(range(70))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Rank:
    """A worker half with a numpy cache instead of vLLM's."""

    def __init__(self, folder, keys, worker_id, role, seed, lease_ms=2_000, pair_timeout_ms=5_000):
        self.settings = Settings(
            key_file=str(folder),
            worker_id=worker_id,
            port=free_port(),
            lease_ms=lease_ms,
            pair_timeout_ms=pair_timeout_ms,
        )
        floats = LAYOUT.layer_block_nbytes // 4
        rows = np.random.default_rng(seed).random((LAYOUT.num_layers, 16, floats))
        self.cache = rows.astype(np.float32)
        endpoint = f"tcp://127.0.0.1:{self.settings.port}"
        self.info = ConnectorInfo(
            member=Member(worker_id=worker_id, epoch=new_epoch(), endpoints=(endpoint,)),
            role=role,
            num_blocks=16,
            max_model_len=256,
            layout=LAYOUT,
            identity=IDENTITY,
            facts=FACTS,
        )
        layers = [
            LayerView(
                name=f"l{index}",
                address=layer.ctypes.data,
                shape=layer.shape,
                stride_nbytes=layer.strides,
                item_nbytes=4,
            )
            for index, layer in enumerate(self.cache)
        ]
        self.side = WorkerSide(self.info, self.settings, keys, layers)

    def step(self, *orders):
        import msgspec

        self.side.begin_step(msgspec.msgpack.encode(StepOrders(orders=orders)))

    def until(self, index, vllm_id):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if vllm_id in self.side.take_ended()[index]:
                return
            time.sleep(0.005)
        raise AssertionError(f"{vllm_id} did not end")


@pytest.fixture
def pair(tmp_path):
    member, issuer = mint_keys(tmp_path / "keys")
    ranks = [
        Rank(tmp_path, member, "p0", "kv_producer", 1),
        Rank(tmp_path, member, "d0", "kv_consumer", 2),
    ]
    yield *ranks, member, TicketIssuer(issuer.signer())
    for rank in ranks:
        rank.side.close()


def mint(issuer, source, destination, direction, request_id):
    return issuer.mint(
        fence(source.info, destination.info, request_id=request_id),
        source.info,
        destination.info,
        direction=direction,
        route_epoch=1,
        now_us=time.time_ns() // 1000,
        deadline_ms=20_000,
    )


def hold(ticket, blocks=(3, 5, 4)):
    return Hold(
        vllm_id="p",
        ticket=ticket,
        token_ids=TOKENS,
        block_ids=blocks,
        first_token=Token(index=0, token_id=9),
        num_cached_tokens=0,
    )


def load(ticket, blocks=(8, 2, 11)):
    return Load(
        vllm_id="d",
        ticket=ticket,
        token_ids=TOKENS,
        token_start=0,
        visible_blocks=(),
        block_ids=blocks,
    )


def stream(ticket, blocks=(3, 5, 4)):
    return Stream(vllm_id="p", ticket=ticket, token_ids=TOKENS, block_ids=blocks, start=0, end=70)


def require_quiet(keys, *ranks):
    for rank in ranks:
        status = ask_status(rank.info.member.endpoints[0], keys)
        assert (status.held_blocks, status.loading_blocks, status.open_holds) == (0, 0, 0)


def test_both_directions_move_the_bytes_themselves(pair):
    source, destination, keys, issuer = pair
    began_us = time.monotonic_ns() // 1000
    ticket = read_ticket(mint(issuer, source, destination, Direction.PULL, "r1"), keys.verifier())
    source.step(hold(ticket))
    destination.step(load(ticket))
    destination.until(1, "d")
    source.until(0, "p")
    assert (destination.cache[:, [8, 2, 11]] == source.cache[:, [3, 5, 4]]).all()
    ticket = read_ticket(mint(issuer, source, destination, Direction.PUSH, "r2"), keys.verifier())
    destination.step(load(ticket, (1, 6, 7)))
    source.step(stream(ticket, (9, 10, 0)))
    for index in range(LAYOUT.num_layers):
        source.side.layer_written(f"l{index}")
    source.side.end_step()
    source.step(hold(ticket, (9, 10, 0)))
    destination.until(1, "d")
    source.until(0, "p")
    assert (destination.cache[:, [1, 6, 7]] == source.cache[:, [9, 10, 0]]).all()
    assert destination.side.take_failed_blocks() == set()
    require_quiet(keys, source, destination)
    require_records(keys, destination, began_us)


def require_records(keys, destination, began_us):
    """Both loads are told of, step after step on this host's own clock."""
    endpoint = destination.info.member.endpoints[0]
    said = ask_handoffs(endpoint, keys, ("r1.1", "r2.1", "unknown.1"))
    assert said.host == this_host() and [one.fence.request_id for one in said.records] == [
        "r1",
        "r2",
    ]
    for one in said.records:
        steps = [began_us, one.asked_us, one.reserved_us, one.first_byte_us, one.all_visible_us]
        steps += [one.validated_us, one.ended_us, said.now_us, time.monotonic_ns() // 1000]
        assert steps == sorted(steps) and not one.reason
        assert one.logical_nbytes * 96 == 70 * one.arrived_nbytes > 0


def test_a_source_that_ended_fails_loads_and_a_gateway_can_give_up(pair):
    source, destination, keys, issuer = pair
    text = mint(issuer, source, destination, Direction.PULL, "r3")
    source.step(hold(read_ticket(text, keys.verifier())))
    assert give_up(text, keys)
    source.until(0, "p")
    require_quiet(keys, source)
    ticket = read_ticket(mint(issuer, source, destination, Direction.PULL, "r4"), keys.verifier())
    source.side.close()
    destination.step(load(ticket))
    deadline = time.monotonic() + 10
    while not destination.side.take_ended()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert destination.side.take_failed_blocks() == {8, 2, 11}
    require_quiet(keys, destination)


def test_whoever_lacks_the_deployments_key_gets_no_answer(pair, tmp_path):
    source, _, keys, _ = pair
    stranger, _ = mint_keys(tmp_path / "other")
    endpoint = source.info.member.endpoints[0]
    assert ask_status(endpoint, stranger, timeout_ms=500) is None
    assert ask_status(endpoint, keys) is not None


def test_a_taken_port_is_named(pair):
    source, _, keys, _ = pair
    from baton.integrations.vllm.link import Link

    with pytest.raises(ConfigError, match=r"cannot listen.*\.port"):
        Link(source.info.member.endpoints[0], keys)
    assert threading.active_count() > 2


def test_settings_name_what_is_wrong():
    with pytest.raises(ConfigError, match="key_file"):
        read_settings({"worker_id": "p0", "port": 1})
    with pytest.raises(ConfigError, match="data_plane is 'tcp'"):
        read_settings({"key_file": "k", "worker_id": "p0", "port": 1, "data_plane": "tcp"})
    with pytest.raises(ConfigError, match="unknown field `prot`"):
        read_settings({"key_file": "k", "worker_id": "p0", "port": 1, "prot": 1})


def test_a_side_that_was_held_up_reads_what_came_before_it_judges_a_lease(tmp_path):
    member, issuer = mint_keys(tmp_path / "keys")
    source = Rank(tmp_path, member, "p0", "kv_producer", 1, lease_ms=20_000)
    destination = Rank(tmp_path, member, "d0", "kv_consumer", 2, 1_000, 1_000)
    plane = destination.side._mover._plane
    put = plane.put

    def held_up(order):
        plane.put = put
        time.sleep(1.5)  # longer than the lease; the source says meanwhile that it lives
        return put(order)

    plane.put = held_up
    try:
        text = mint(TicketIssuer(issuer.signer()), source, destination, Direction.PULL, "r1")
        ticket = read_ticket(text, member.verifier())
        source.step(hold(ticket))
        destination.step(load(ticket))
        destination.until(1, "d")
        assert plane.put is put, "nobody was held up"
        counters = ask_status(destination.info.member.endpoints[0], member).counters
        assert counters.get("published_loads") == 1, counters
        source.until(0, "p")
    finally:
        source.side.close()
        destination.side.close()
