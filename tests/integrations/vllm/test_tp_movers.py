"""Servers of several ranks without vLLM: a thread, a port and a NIXL agent for each rank."""

import contextlib
import time

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from baton.core.ids import Direction
from baton.core.request import Token
from baton.integrations.vllm.info import Member
from baton.integrations.vllm.keys import mint_keys
from baton.integrations.vllm.memory import LayerView
from baton.integrations.vllm.orders import Hold, Load, StepOrders, Stream
from baton.integrations.vllm.settings import Settings
from baton.integrations.vllm.status import ask_handoffs, ask_status
from baton.integrations.vllm.ticket import TicketIssuer, read_ticket
from baton.integrations.vllm.worker_side import WorkerSide
from baton.runtime.dataplane.nixl import is_installed
from baton.runtime.vllm.handoff_word import fold_word, told_of
from tests.integrations.vllm.members import fence
from tests.integrations.vllm.servers import NUM_LAYERS, TOKENS, cache_of, head_of, rank_info
from tests.integrations.vllm.test_mover import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed(), reason="NIXL is missing: pip install 'kvbaton[nixl]'"),
]
SIZES = [
    *((1, 2, heads) for heads in (1, 2, 4)),
    *((2, 1, heads) for heads in (1, 2, 4)),
    (2, 4, 4),
    (4, 2, 2),
    (2, 2, 2),
]


class Server:
    """Every rank of a server; their caches are cut from one array."""

    def __init__(self, keys, worker_id, role, tp_size, heads, seed):
        self.whole = cache_of(seed, heads)
        ports = [free_port() for _ in range(tp_size)]
        endpoints = tuple(f"tcp://127.0.0.1:{port}" for port in ports)
        epoch = time.time_ns() // 1_000_000
        self.infos, self.sides, self.caches, self.heads = [], [], [], []
        for rank, port in enumerate(ports):
            info = rank_info(worker_id, role, tp_size, rank, heads, endpoints)
            member = Member(worker_id=worker_id, epoch=epoch, endpoints=endpoints)
            info = replace(info, member=member)
            first = head_of(rank, tp_size, heads)
            held = slice(first, first + info.layout.num_kv_heads)
            cache = np.ascontiguousarray(self.whole[:, :, held])
            layers = [
                LayerView(
                    name=f"l{index}",
                    address=layer.ctypes.data,
                    shape=layer.shape,
                    stride_nbytes=layer.strides,
                    item_nbytes=4,
                )
                for index, layer in enumerate(cache)
            ]
            settings = Settings(key_file="k", worker_id=worker_id, port=port, lease_ms=2_000)
            self.infos.append(info)
            self.caches.append(cache)
            self.heads.append(held)
            self.sides.append(WorkerSide(info, settings, keys, layers))

    def step(self, *orders):
        for side in self.sides:
            side.begin_step(msgspec.msgpack.encode(StepOrders(orders=orders)))

    def stream(self, order):
        self.step(order)
        for index in range(NUM_LAYERS):
            for side in self.sides:
                side.layer_written(f"l{index}")
        for side in self.sides:
            side.end_step()

    def until_ended(self, index, vllm_id):
        """Blocks that a rank calls failed, rank by rank."""
        for side in self.sides:
            deadline = time.monotonic() + 10
            while vllm_id not in side.take_ended()[index]:
                assert time.monotonic() < deadline, f"{vllm_id} did not end"
                time.sleep(0.005)
        return [side.take_failed_blocks() for side in self.sides]

    def close(self):
        for side in self.sides:
            side.close()


@contextlib.contextmanager
def open_servers(folder, source_tp, destination_tp, heads):
    keys, issuer = mint_keys(folder)
    source = Server(keys, "p0", "kv_producer", source_tp, heads, 1)
    target = Server(keys, "d0", "kv_consumer", destination_tp, heads, 2)
    try:
        yield source, target, keys, TicketIssuer(issuer.signer())
    finally:
        source.close()
        target.close()


def ticket_of(issuer, keys, source, target, direction, request_id):
    text = issuer.mint(
        fence(source.infos[0], target.infos[0], request_id=request_id),
        source.infos[0],
        target.infos[0],
        direction=direction,
        route_epoch=1,
        now_us=time.time_ns() // 1000,
        deadline_ms=20_000,
    )
    return read_ticket(text, keys.verifier())


def hold(ticket, blocks):
    return Hold(
        vllm_id="p",
        ticket=ticket,
        token_ids=TOKENS,
        block_ids=blocks,
        first_token=Token(index=0, token_id=9),
        num_cached_tokens=0,
    )


def load(ticket, blocks):
    return Load(
        vllm_id="d",
        ticket=ticket,
        token_ids=TOKENS,
        token_start=0,
        visible_blocks=(),
        block_ids=blocks,
    )


def require_quiet(keys, *servers):
    for server in servers:
        for endpoint in server.infos[0].member.endpoints:
            status = ask_status(endpoint, keys)
            assert (status.held_blocks, status.loading_blocks, status.open_holds) == (0, 0, 0)


def require_told(keys, target, ticket):
    """Every leg of every rank has a record, and together they are one publication."""
    endpoints = target.infos[0].member.endpoints
    said = [ask_handoffs(endpoint, keys, (ticket.transfer_id,)) for endpoint in endpoints]
    word = fold_word(ticket.fence, [told_of(one, 0, 0) for one in said], 0)
    assert [mark.name for mark in word.marks][-3:] == ["all_visible", "validated", "published"]
    assert word.marks[-1].data["num_legs"] == sum(len(one.records) for one in said)
    assert word.marks[-1].at_us == max(leg.ended_us for one in said for leg in one.records)


@pytest.mark.parametrize(("source_tp", "destination_tp", "heads"), SIZES)
def test_both_directions_move_every_head_to_its_ranks(tmp_path, source_tp, destination_tp, heads):
    with open_servers(tmp_path, source_tp, destination_tp, heads) as (source, target, keys, issuer):
        ticket = ticket_of(issuer, keys, source, target, Direction.PULL, "r1")
        source.step(hold(ticket, (3, 5, 4)))
        target.step(load(ticket, (8, 2, 11)))
        assert target.until_ended(1, "d") == [set()] * destination_tp
        source.until_ended(0, "p")
        ticket = ticket_of(issuer, keys, source, target, Direction.PUSH, "r2")
        target.step(load(ticket, (1, 6, 7)))
        source.stream(
            Stream(
                vllm_id="p",
                ticket=ticket,
                token_ids=TOKENS,
                block_ids=(9, 10, 0),
                start=0,
                end=70,
            )
        )
        source.step(hold(ticket, (9, 10, 0)))
        assert target.until_ended(1, "d") == [set()] * destination_tp
        source.until_ended(0, "p")
        expected = target.whole.copy()
        expected[:, [8, 2, 11, 1, 6, 7]] = source.whole[:, [3, 5, 4, 9, 10, 0]]
        for cache, heads_here in zip(target.caches, target.heads, strict=True):
            assert (cache == expected[:, :, heads_here]).all()
        require_quiet(keys, source, target)
        require_told(keys, target, ticket)


def test_a_server_of_several_ranks_that_ended_fails_the_load_on_every_rank(tmp_path):
    with open_servers(tmp_path, 2, 4, 4) as (source, target, keys, issuer):
        ticket = ticket_of(issuer, keys, source, target, Direction.PULL, "r3")
        source.step(hold(ticket, (3, 5, 4)))
        source.close()
        target.step(load(ticket, (8, 2, 11)))
        assert target.until_ended(2, "d") == [{8, 2, 11}] * 4
        for cache, heads_here in zip(target.caches, target.heads, strict=True):
            assert (cache == target.whole[:, :, heads_here]).all()
        require_quiet(keys, target)
