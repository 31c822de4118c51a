"""The small deployment that is explored: two workers, a few requests, and a budget of faults."""

from typing import Literal

import msgspec

from baton.config import CacheConfig, RouterConfig, TransferConfig, WorkerConfig
from baton.core.events import Tick
from baton.core.ids import Direction, Role
from baton.core.layout import ModelInfo
from baton.core.messages import Envelope, Hello
from baton.core.request import Request, SamplingParams
from baton.core.snapshot import WorkerInfo
from baton.errors import ConfigError
from baton.nodes.router import Router
from baton.nodes.worker import Worker
from baton.protocol.signing import HmacKey
from baton.sim.arithmetic import Truth, model_info

PREFILL, DECODE = 0, 1
NAMES = ("prefill-0", "decode-1")
ROLES = (Role.PREFILL, Role.DECODE)
BLOCK_SIZE = 2
NUM_BLOCKS = 8
SILENT = CacheConfig(announce=False)
"""Nobody is told what is held: every message more would multiply the interleavings."""
KEY = HmacKey("router", b"one secret of one exploration")
RETRY_MS, LEASE_MS, ATTEMPT_MS, TTFT_MS = 100, 400, 800, 3_200
FAR_MS = 1 << 40
"""A heartbeat and a worker timeout that no explored time reaches."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What is explored; every fault is a budget that may or may not be spent."""

    num_requests: int = 2
    num_chunks: int = 2
    """Chunks per transfer: one per layer, each with credit for one chunk at a time."""
    num_crashes: int = 1
    num_duplicates: int = 1
    num_drops: int = 1
    num_retries: int = 1
    num_cancels: int = 1
    num_give_ups: int = 0
    num_faults: int = 1
    """At most so many faults of all kinds together in one run."""
    direction: Direction = Direction.PUSH

    def __post_init__(self) -> None:
        limits = [("num_requests", 1, 3), ("num_chunks", 1, 4)]
        limits += [(name, 0, 3) for name in ("num_crashes", "num_duplicates", "num_drops")]
        limits += [("num_retries", 0, 3), ("num_cancels", 0, 3), ("num_faults", 0, 12)]
        limits += [("num_give_ups", 0, 1)]
        for name, least, most in limits:
            value = getattr(self, name)
            if not least <= value <= most:
                flag = "--" + name.removeprefix("num_").replace("_", "-")
                raise ConfigError(f"{flag} is {value}; choose {least} to {most}")
        if self.num_give_ups and self.num_drops and self.num_faults > 1:
            raise ConfigError(
                f"--give-ups {self.num_give_ups} with --drops {self.num_drops}: heartbeats repeat "
                "what was lost of an end, and none is explored; use --drops 0 or --faults 1"
            )

    @property
    def budgets(self) -> tuple[int, ...]:
        """What may happen: crashes, duplicates, drops, retries, cancels, lives that are
        given up, and all together."""
        kinds = (
            self.num_crashes,
            self.num_duplicates,
            self.num_drops,
            self.num_retries,
            self.num_cancels,
            self.num_give_ups,
        )
        most = min(self.num_faults, sum(kinds))
        return (*(min(kind, most) for kind in kinds), most)

    @property
    def model(self) -> ModelInfo:
        """The arithmetic model, with one layer per chunk."""
        return model_info(BLOCK_SIZE, self.num_chunks, max_model_len=64)

    @property
    def transfer(self) -> TransferConfig:
        """A chunk is one layer of one block, and credit is one chunk."""
        nbytes = self.model.layout.layer_block_nbytes
        schedule: Literal["layer"] = "layer"
        return TransferConfig(
            direction=self.direction,
            schedule=schedule,
            chunk_nbytes=nbytes,
            credit_nbytes=nbytes,
            lease_ms=LEASE_MS,
            retry_ms=RETRY_MS,
        )

    def requests(self) -> tuple[Request, ...]:
        """Prompts of one block that share nothing, and two tokens each."""
        return tuple(
            Request(
                request_id=f"r{number}",
                prompt_token_ids=tuple(10 * number + offset for offset in range(BLOCK_SIZE)),
                sampling=SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True),
            )
            for number in range(self.num_requests)
        )

    def truths(self) -> dict[str, Truth]:
        """The right answer and the right rows of every request."""
        return {request.request_id: Truth(request, self.model) for request in self.requests()}

    def router(self) -> Router:
        """A production router node."""
        config = RouterConfig(
            attempt_timeout_ms=ATTEMPT_MS, ttft_budget_ms=TTFT_MS, worker_timeout_ms=FAR_MS
        )
        return Router(config, self.transfer, SILENT, signer=KEY)

    def worker(self, side: int, epoch: int, now_us: int) -> Worker:
        """A production worker node that has sent its first heartbeat, which nobody needs."""
        node = Worker(
            worker_id=NAMES[side],
            ordinal=side,
            epoch=epoch,
            role=ROLES[side],
            model=self.model,
            num_blocks=NUM_BLOCKS,
            worker=WorkerConfig(block_size=BLOCK_SIZE, max_batch_tokens=16, growth_tokens=1),
            transfer=self.transfer,
            cache=SILENT,
            heartbeat_ms=FAR_MS,
            verifier=KEY,
        )
        node.handle(Tick(), now_us)
        return node

    def hello(self, side: int, epoch: int) -> Envelope:
        """The first message of a life of a worker."""
        info = WorkerInfo(
            worker_id=NAMES[side],
            epoch=epoch,
            role=ROLES[side],
            pid=0,
            version="explored",
            endpoint="",
            model=self.model,
            num_blocks=NUM_BLOCKS,
            max_num_seqs=8,
            region=b"",
        )
        return Envelope(sender_id=NAMES[side], sender_epoch=epoch, message=Hello(info=info))
