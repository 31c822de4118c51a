"""The load: 256 workers that hold a million named blocks of prompts with shared beginnings."""

from collections.abc import Iterator, Sequence
from random import Random

import msgspec

_NAME_NBYTES = 16
_HOLDERS = (1, 1, 1, 2, 2, 3)
_KEPT_PROMPTS = 4096


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How much of what; equal shapes make equal loads."""

    num_workers: int = 256
    num_blocks: int = 1_000_000
    prompt_blocks: int = 128
    num_heads: int = 64
    """Beginnings that many prompts share, as system prompts are."""
    head_blocks: int = 16
    seed: int = 1

    @property
    def text(self) -> str:
        """In words."""
        return (
            f"{self.num_workers} workers, {self.num_blocks:,} blocks, prompts of "
            f"{self.prompt_blocks} blocks of which {self.head_blocks} are one of "
            f"{self.num_heads} shared beginnings; each prompt is held by 1 to 3 workers"
        )


class Load:
    """Iterates over (worker, blocks that it stores); keeps some prompts to ask for later."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._random = Random(shape.seed)
        self.prompts: list[list[bytes]] = []

    def __iter__(self) -> Iterator[tuple[int, list[bytes]]]:
        shape, random = self.shape, self._random
        heads = [self._names(shape.head_blocks) for _ in range(shape.num_heads)]
        num_blocks = shape.num_heads * shape.head_blocks
        while num_blocks < shape.num_blocks:
            prompt = random.choice(heads) + self._names(shape.prompt_blocks - shape.head_blocks)
            num_blocks += shape.prompt_blocks - shape.head_blocks
            if len(self.prompts) < _KEPT_PROMPTS:
                self.prompts.append(prompt)
            holders = random.sample(range(shape.num_workers), random.choice(_HOLDERS))
            for number, worker in enumerate(holders):
                end = len(prompt) if not number else random.randint(1, len(prompt))
                yield worker, prompt[:end]

    def questions(self, count: int, seed: int) -> list[list[bytes]]:
        """Prompts as they come in: half known whole, most others to some depth, few not at all.

        The names are new objects: like those of a request they have never been looked up.
        """
        random, length = Random(seed), self.shape.prompt_blocks
        asked = []
        for _ in range(count):
            kind, prompt = random.random(), random.choice(self.prompts)
            depth = length if kind < 0.5 else random.randint(1, length - 1) if kind < 0.95 else 0
            known = [bytes(memoryview(name)) for name in prompt[:depth]]
            asked.append(known + [random.randbytes(_NAME_NBYTES) for _ in range(length - depth)])
        return asked

    def _names(self, count: int) -> list[bytes]:
        return [self._random.randbytes(_NAME_NBYTES) for _ in range(count)]


def as_number(name: bytes) -> int:
    """A name in the 64 bits that Dynamo's tree has for one."""
    return int.from_bytes(name[:8], "little")


def worker_name(number: int, num_workers: int) -> str:
    """Half of them prefill, half decode."""
    role = "prefill" if number < num_workers // 2 else "decode"
    return f"{role}-{number}"


def percentile(samples: Sequence[float], share: float) -> float:
    """Nearest rank."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
