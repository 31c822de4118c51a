"""vLLM's engine step by step, with work that grows with the batch: what the fast host is judged by.

Every request, block and decode is looked at in every step. Steps are chosen one ahead: while one
runs, the next one is chosen already. Blocks of a preempted request are found again as long as
nobody took them.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

StepUs = Callable[[list[tuple[int, int]], list[int]], float]
"""Chunks as (rows, visible), visible lengths of decodes."""


@dataclass
class One:
    """A request under way."""

    prompt: int
    output: int
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    wanted: int = 0
    """Rows before its next token."""
    scheduled: int = 0
    """Tokens that were drawn or will be by steps on their way."""
    drawn: int = 0
    life: int = 0
    noticed_us: float = 0.0
    first_us: float = -1.0
    last_us: float = -1.0


class Blocks:
    """Free ones in the order of their last use; a freed one keeps what it holds until taken."""

    def __init__(self, num_blocks: int, size: int) -> None:
        self.size = size
        self.free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self.holds: dict[int, tuple[int, int]] = {}
        self.places: dict[tuple[int, int], int] = {}

    def num_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.size)

    def take(self, number: int, one: One, num_tokens: int) -> bool:
        wanted = self.num_for(num_tokens) - len(one.blocks)
        if wanted > len(self.free):
            return False
        for _ in range(max(0, wanted)):
            block, _ = self.free.popitem(last=False)
            self._forget(block)
            one.blocks.append(block)
        return True

    def _forget(self, block: int) -> None:
        if block in self.holds:
            del self.places[self.holds.pop(block)]

    def give_back(self, number: int, one: One, num_tokens: int) -> None:
        for place in reversed(range(len(one.blocks))):
            block = one.blocks[place]
            if (place + 1) * self.size <= num_tokens:
                self.holds[block] = (number, place)
                self.places[number, place] = block
            self.free[block] = None
        one.blocks = []

    def find(self, number: int, one: One) -> int:
        """Take what is left of it; tokens."""
        found = 0
        while (number, found) in self.places and (found + 1) * self.size < one.wanted:
            found += 1
        blocks = [self.places[number, place] for place in range(found)]
        if self.num_for(one.wanted) - found > len(self.free) - found:
            return -1
        for block in blocks:
            del self.free[block]
            self._forget(block)
        one.blocks = blocks
        return found * self.size


class EngineLoop:
    """One engine with a queue of its own."""

    def __init__(
        self,
        requests: Sequence[tuple[float, int, int]],
        step_us: StepUs,
        *,
        num_blocks: int,
        block_size: int,
        budget: int,
        max_num_seqs: int,
    ) -> None:
        self.arrivals = [arrival for arrival, _, _ in requests]
        self.all = [One(prompt=p, output=o, wanted=p) for _, p, o in requests]
        self.blocks = Blocks(num_blocks, block_size)
        self.step_us, self.budget, self.max_num_seqs = step_us, budget, max_num_seqs
        self.waiting: deque[int] = deque()
        self.running: list[int] = []
        self.now_us = self.free_us = 0.0
        self.num_arrived = self.num_preempted = 0
        self.under_way: deque[tuple[float, list[tuple[int, int]]]] = deque()

    def run(self) -> "EngineLoop":
        while any(one.last_us < 0 for one in self.all):
            self._notice()
            if self._begin() and len(self.under_way) < 2:
                continue
            if self.under_way:
                self._end()
            else:
                self.now_us = max(self.now_us, self.arrivals[self.num_arrived])
                self.free_us = max(self.free_us, self.now_us)
        return self

    def _notice(self) -> None:
        while self.num_arrived < len(self.all) and self.arrivals[self.num_arrived] <= self.now_us:
            self.all[self.num_arrived].noticed_us = self.now_us
            self.waiting.append(self.num_arrived)
            self.num_arrived += 1

    def _begin(self) -> bool:
        chunks: dict[int, tuple[int, int]] = {}
        decodes: dict[int, int] = {}
        left, is_short = self.budget, False
        at = 0
        while at < len(self.running) and left > 0:
            number = self.running[at]
            one = self.all[number]
            is_prompt = one.computed < one.wanted
            if not is_prompt and one.scheduled >= one.output:
                at += 1
                continue
            rows = min(one.wanted - one.computed, left) if is_prompt else 1
            end = one.computed + rows if is_prompt else one.prompt + one.scheduled
            while not self.blocks.take(number, one, end):
                is_short = True
                victim = self.running.pop()
                self._preempt(victim)
                chunks.pop(victim, None)
                decodes.pop(victim, None)
                if victim == number:
                    break
            if number not in self.running:
                break
            if is_prompt:
                chunks[number] = (rows, one.computed)
                one.computed += rows
            else:
                decodes[number] = end
                one.scheduled += 1
            left -= rows
            at += 1
        if not is_short:
            self._admit(chunks, left)
        if not chunks and not decodes:
            return False
        draws = [number for number in chunks if self._draws(number)] + list(decodes)
        self.free_us = max(self.free_us, self.now_us)
        self.free_us += self.step_us(list(chunks.values()), list(decodes.values()))
        self.under_way.append((self.free_us, [(n, self.all[n].life) for n in draws]))
        return True

    def _draws(self, number: int) -> bool:
        one = self.all[number]
        if one.computed < one.wanted:
            return False
        one.scheduled += 1
        return True

    def _admit(self, chunks: dict[int, tuple[int, int]], left: int) -> None:
        while self.waiting and left > 0 and len(self.running) < self.max_num_seqs:
            number = self.waiting[0]
            one = self.all[number]
            found = self.blocks.find(number, one)
            if found < 0:
                return
            assert self.blocks.take(number, one, one.wanted)
            self.waiting.popleft()
            self.running.append(number)
            rows = min(one.wanted - found, left)
            chunks[number] = (rows, found)
            one.computed = found + rows
            left -= rows

    def _preempt(self, number: int) -> None:
        one = self.all[number]
        self.blocks.give_back(number, one, one.prompt + one.drawn - 1)
        one.life += 1
        one.scheduled = one.drawn
        one.wanted, one.computed = one.prompt + one.drawn, 0
        self.waiting.appendleft(number)
        self.num_preempted += 1

    def _end(self) -> None:
        end_us, draws = self.under_way.popleft()
        self.now_us = max(self.now_us, end_us)
        for number, life in draws:
            one = self.all[number]
            if one.life != life:
                continue
            one.drawn += 1
            if one.first_us < 0:
                one.first_us = self.now_us
            if one.drawn == one.output:
                one.last_us = self.now_us
                self.running.remove(number)
                self.blocks.give_back(number, one, 0)
