"""Baton's side: the index under the load, and whole decisions of a router with its fleet."""

import gc
import time
from collections.abc import Sequence

from msgspec.structs import replace

from baton.bench.router.load import Load, worker_name
from baton.cache.index import BlockIndex
from baton.config import CacheConfig, RouterConfig, TransferConfig
from baton.core import messages
from baton.core.cache import CacheChange, Place, Tier
from baton.core.events import Received
from baton.core.ids import Role
from baton.core.layout import ModelInfo
from baton.core.messages import CacheChanges, Envelope, Hello
from baton.core.request import Request, SamplingParams
from baton.core.snapshot import LoadSnapshot, Rates, WorkerInfo
from baton.nodes.record import RequestRecord
from baton.nodes.router import Router
from baton.nodes.routes import Routes
from baton.protocol.signing import HmacKey
from baton.sim.arithmetic import model_info

_BLOCK_SIZE = 16
_NOW_US = 1_000_000
_NUM_BLOCKS = 1 << 20
_RATES = Rates(
    prefill_us_per_token=50.0,
    prefill_us_per_pair=0.001,
    decode_step_us=20_000.0,
    transfer_bytes_per_us=10_000.0,
    transfer_overhead_us=20.0,
)


def fill_index(load: Load) -> tuple[BlockIndex, float]:
    """The index with the whole load, and blocks stored per second."""
    shape = load.shape
    places = [
        Place(worker_name(number, shape.num_workers), 1, Tier.MEMORY, 0)
        for number in range(shape.num_workers)
    ]
    index, stored, spent_ns = BlockIndex(), 0, 0
    for worker, names in load:
        begin = time.perf_counter_ns()
        index.store(places[worker], names)
        spent_ns += time.perf_counter_ns() - begin
        stored += len(names)
    return index, stored * 1e9 / spent_ns


def time_matches(index: BlockIndex, questions: Sequence[Sequence[bytes]]) -> list[float]:
    """Microseconds of each answer, both dicts of depths included."""
    gc.collect()
    samples = []
    for names in questions:
        begin = time.perf_counter_ns()
        match = index.match(names)
        _ = match.depths, match.memory_depths
        samples.append((time.perf_counter_ns() - begin) / 1000)
    return samples


class FleetRouter:
    """A production router whose fleet has joined, told its load and told what it holds."""

    def __init__(self, load: Load) -> None:
        self._shape = load.shape
        self.router = Router(
            RouterConfig(),
            TransferConfig(),
            CacheConfig(),
            signer=HmacKey("router", b"a key of a benchmark"),
        )
        self._model = model_info(_BLOCK_SIZE, 4, _BLOCK_SIZE * (load.shape.prompt_blocks + 64))
        count = self._shape.num_workers
        self._names = [worker_name(number, count) for number in range(count)]
        for name in self._names:
            self._join(name)

    def hold(self, load: Load) -> None:
        """Every worker announces its part of the load."""
        sequences = dict.fromkeys(self._names, 1)
        for worker, names in load:
            name = self._names[worker]
            change = CacheChange(stored=True, tier=Tier.MEMORY, hashes=tuple(names))
            word = CacheChanges(generation=0, first_sequence=sequences[name], changes=(change,))
            sequences[name] += 1
            self._hear(name, word)

    def time_decisions(self, policy: str, questions: Sequence[Sequence[bytes]]) -> list[float]:
        """Microseconds from a waiting request to its route: fleet, match, prices, choice."""
        context = self.router.context
        context.config = replace(context.config, policy=policy)
        routes = Routes(context)
        num_tokens = self._shape.prompt_blocks * _BLOCK_SIZE + 1
        samples = []
        for number, names in enumerate(questions):
            request = Request(
                request_id=f"r{number}",
                prompt_token_ids=(7,) * num_tokens,
                sampling=SamplingParams(max_tokens=128),
            )
            record = RequestRecord(request, _NOW_US, 60_000_000)
            record.block_hashes = tuple(names)
            begin = time.perf_counter_ns()
            outcome = routes.choose(record)
            samples.append((time.perf_counter_ns() - begin) / 1000)
            assert outcome is not None, "an idle fleet has room"
        return samples

    def _join(self, name: str) -> None:
        role = Role(name.partition("-")[0])
        self._hear(name, Hello(info=_info(name, role, self._model)))
        self._hear(name, messages.Load(snapshot=_snapshot(name, role)))

    def _hear(self, sender: str, message: CacheChanges | Hello | messages.Load) -> None:
        envelope = Envelope(sender_id=sender, sender_epoch=1, message=message)
        self.router.handle(Received(envelope=envelope), _NOW_US)


def _info(name: str, role: Role, model: ModelInfo) -> WorkerInfo:
    return WorkerInfo(
        worker_id=name,
        epoch=1,
        role=role,
        pid=0,
        version="bench",
        endpoint="",
        model=model,
        num_blocks=_NUM_BLOCKS,
        max_num_seqs=256,
        region=b"",
    )


def _snapshot(name: str, role: Role) -> LoadSnapshot:
    return LoadSnapshot(
        worker_id=name,
        worker_epoch=1,
        role=role,
        role_epoch=1,
        version=1,
        waiting=0,
        running=0,
        pending_tokens=0,
        free_blocks=_NUM_BLOCKS,
        reserved_blocks=0,
        cached_blocks=0,
        quarantined_blocks=0,
        total_blocks=_NUM_BLOCKS,
        inflight_nbytes=0,
        held_copies=0,
        rates=_RATES,
    )
