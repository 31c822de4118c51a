"""Dynamo's RadixTree as a child process that is given the same load and the same questions."""

from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE, Popen
from types import TracebackType
from typing import Any

import msgspec

from baton.bench.router.load import Load, as_number
from baton.errors import BatonError

RELEASE = "1.4.2"


class RadixTreePeer:
    """One tree in one child; a line for each order, a line for each answer."""

    def __init__(self, python: str) -> None:
        child = Path(__file__).with_name("dynamo_child.py")
        try:
            self._process = Popen((python, str(child)), stdin=PIPE, stdout=PIPE)
        except OSError as error:
            raise BatonError(f"--dynamo-python {python!r}: {error}") from error
        self._encoder = msgspec.json.Encoder()
        self.version = self._read().decode().strip()

    def __enter__(self) -> "RadixTreePeer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def store(self, load: Load) -> float:
        """Give it the whole load; blocks per second that it took."""
        for number, (worker, names) in enumerate(load):
            blocks = [{"block_hash": (n := as_number(name)), "tokens_hash": n} for name in names]
            stored = {"stored": {"parent_hash": None, "blocks": blocks}}
            event = {"event_id": number, "data": stored, "dp_rank": 0}
            self._write({"worker": worker, "store": event})
        return float(self._ask({"rate": True}))

    def time_matches(self, questions: Sequence[Sequence[bytes]]) -> list[float]:
        """Microseconds of each answer, its dict of scores included."""
        found: list[float] = self._ask({"match": _numbers(questions)})
        return found

    def depths(self, questions: Sequence[Sequence[bytes]]) -> list[dict[int, int]]:
        """What it answers."""
        found = self._ask({"depths": _numbers(questions)})
        return [{int(worker): depth for worker, depth in one.items()} for one in found]

    def _ask(self, order: dict[str, Any]) -> Any:
        self._write(order)
        return msgspec.json.decode(self._read())

    def _write(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(self._encoder.encode(order) + b"\n")
        self._process.stdin.flush()

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BatonError(
                f"the RadixTree child ended with {self._process.wait()}; its Python needs "
                f"ai-dynamo-runtime=={RELEASE}"
            )
        return line


def _numbers(questions: Sequence[Sequence[bytes]]) -> list[list[int]]:
    return [[as_number(name) for name in names] for names in questions]
