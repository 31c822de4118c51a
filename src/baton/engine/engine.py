"""The engine: one model, one K/V pool, one forward per step over rows of many sequences."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch

from baton.config import ModelConfig
from baton.core.layout import ModelInfo
from baton.core.work import Batch, BatchResult, Sampled
from baton.engine.build import Built, build
from baton.engine.forward import Forward
from baton.engine.pool import Pool
from baton.engine.sampling import sample
from baton.engine.selftest import bits_differ, check_equal
from baton.engine.step import check_item, plan
from baton.errors import LocalProtocolError, ModelRefused

_TOLERANCE = {"float32": 2e-3, "bfloat16": 0.25}
"""Largest difference from transformers, as a fraction of the logits' spread."""


class Engine:
    """A loaded model over a paged K/V pool.

    One thread uses an engine at a time. Nothing of a request is kept between steps but the rows
    in the pool: a batch says which blocks hold what.
    """

    def __init__(self, built: Built) -> None:
        self.info: ModelInfo = built.info
        self.deterministic: bool = built.info.deterministic
        self.deterministic_report: str = built.report
        self._built = built
        self._pool: Pool | None = None

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        config: ModelConfig,
        block_size: int,
        threads: int = 1,
        progress: Callable[[str, float], None] | None = None,
    ) -> "Engine":
        """Load the model in folder `path` for blocks of `block_size` tokens.

        Computes with `threads` threads, which changes no bit of a deterministic model; the setting
        is the process's, so all engines of one process must agree. Raises ModelRefused for a model
        that cannot be served exactly (with `config.self_test`, after proving it on this machine),
        and ConfigError for a configuration that cannot work.
        """
        torch.set_num_threads(threads)
        report = progress or _silent
        engine = cls(build(path, config, block_size, report, threads))
        if config.self_test:
            report("self-test", 0.9)
            engine._prove()
        report("ready", 1.0)
        return engine

    @property
    def pool(self) -> Pool:
        """The bound pool; raises LocalProtocolError before `bind_pool`."""
        if self._pool is None:
            raise LocalProtocolError("bind_pool first: the engine has no K/V pool")
        return self._pool

    @property
    def forward(self) -> Forward:
        """What runs the model's steps."""
        return self._built.forward

    def bind_pool(self, buffer: memoryview | None, num_blocks: int) -> None:
        """Use `buffer` (writable, kept alive by the caller) as pool, or private memory if None."""
        self._pool = Pool(self.info.layout, num_blocks, self.info.device, buffer)

    def unbind_pool(self) -> None:
        """Let go of the pool, so that its owner can close the shared memory behind it."""
        self._pool = None

    def execute(self, batch: Batch, on_layer: Callable[[int], None] | None = None) -> BatchResult:
        """Run one step: write K/V of every row and draw a token for each item that asks.

        `on_layer(i)` is called as soon as layer i's K/V of this step is final in the pool, while
        later layers still have to run. When a step writes the last prompt row inside a block, the
        rest of that block is zeroed first. A malformed batch raises LocalProtocolError before
        anything is written; a failure while computing is returned as `error`.
        """
        pool, info = self.pool, self.info
        begin = time.perf_counter()
        for item in batch.items:
            check_item(
                item,
                block_size=info.layout.block_size,
                num_blocks=pool.num_blocks,
                vocab_size=info.vocab_size,
                max_len=info.max_model_len,
            )
        sampled: tuple[Sampled, ...] = ()
        error = ""
        try:
            with torch.inference_mode():
                for item in batch.items:
                    if item.start < item.num_prompt_tokens <= item.end:
                        pool.zero_tail(item.block_table, item.num_prompt_tokens)
                step = plan(batch, info.layout.block_size, self._built.forward.pad, on_layer)
                logits = self._built.forward.run(step, pool)
                asking = [item for item in batch.items if item.sample]
                sampled = sample(asking, logits, info.eos_token_ids)
        except (RuntimeError, MemoryError, ArithmeticError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        duration_us = int((time.perf_counter() - begin) * 1e6)
        return BatchResult(
            batch_id=batch.batch_id, sampled=sampled, duration_us=duration_us, error=error
        )

    def kv_digest(self, block_table: Sequence[int], num_tokens: int) -> str:
        """Digest of exactly `num_tokens` rows of K and V of all layers.

        Independent of block ids, of what the blocks hold behind those rows, and of block size.
        """
        return self.pool.digest(block_table, num_tokens)

    def self_test(self) -> None:
        """Prove the model on this machine; raises ModelRefused naming the check that failed.

        Paged chunks and decode rows must give the logits of the plain transformers forward, and
        with `deterministic` the same bits of K/V and logits however they are batched.
        """
        reason = self._check()
        if reason:
            raise ModelRefused(f"{self.info.name}: self-test failed: {reason}")

    def _prove(self) -> None:
        """The self-test at load: a model whose bits depend on its batch loses the promise only."""
        reason = self._check()
        if reason:
            self.deterministic = False
            self.deterministic_report = f"not deterministic: {reason}"
            self.info = msgspec.structs.replace(self.info, deterministic=False)

    def _check(self) -> str:
        """Raise ModelRefused on wrong logits; say which way of batching changes bits, or ""."""
        built, info = self._built, self.info
        with torch.inference_mode():
            check_equal(
                built.forward, info.layout, built.reference(), info.name, _TOLERANCE[info.dtype]
            )
            if not self.deterministic:
                return ""
            return bits_differ(built.forward, info.layout, info.vocab_size)


def _silent(stage: str, fraction: float) -> None:
    del stage, fraction
