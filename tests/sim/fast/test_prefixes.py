"""Kept prefixes against a model in dictionaries, and the order in which they are given up."""

from collections import OrderedDict
from random import Random

import numpy as np
import pytest

from baton.sim.fast import prefixes as p
from baton.sim.fast.workload import FastWorkload, pack
from baton.workload.request import Workload, WorkloadRequest


def workload(prompts: list[list[int]]) -> FastWorkload:
    requests = tuple(
        WorkloadRequest(
            arrival_us=k,
            num_prompt_tokens=max(1, 16 * len(ids)),
            num_output_tokens=1,
            hash_ids=tuple(ids),
        )
        for k, ids in enumerate(prompts)
    )
    return pack(Workload(name="test", requests=requests, source="test", tokens_per_hash=16))


def prompts(random: Random, count: int) -> list[list[int]]:
    """Trees: a prompt goes on from some depth of an earlier one."""
    made: list[list[int]] = []
    for k in range(count):
        trunk = random.choice(made) if made and random.random() < 0.8 else []
        keep = random.randint(0, len(trunk))
        made.append(trunk[:keep] + [1000 * (k + 1) + j for j in range(random.randint(0, 5))])
    return made


class Model:
    """One worker that keeps chains, by the definition: (references, least recent first)."""

    def __init__(self, max_blocks: int) -> None:
        self.max_blocks = max_blocks
        self.uses: dict[tuple[int, ...], int] = {}
        self.idle: OrderedDict[tuple[int, ...], None] = OrderedDict()

    def num_found(self, ids: list[int]) -> int:
        return next((k for k in range(len(ids)) if tuple(ids[: k + 1]) not in self.uses), len(ids))

    def hold(self, ids: list[int], begin: int, end: int) -> int:
        for k in range(begin, end):
            name = tuple(ids[: k + 1])
            if name not in self.uses:
                if len(self.uses) == self.max_blocks and not self.evict(1):
                    return k
                self.uses[name] = 0
            self.uses[name] += 1
            self.idle.pop(name, None)
        return end

    def let_go(self, ids: list[int], count: int) -> None:
        for k in range(count, 0, -1):
            name = tuple(ids[:k])
            self.uses[name] -= 1
            if not self.uses[name]:
                self.idle[name] = None

    def evict(self, count: int) -> int:
        names = list(self.idle)[:count]
        for name in names:
            del self.idle[name], self.uses[name]
        return len(names)


@pytest.mark.parametrize("seed", range(20))
def test_everything_agrees_with_dictionaries(seed):
    random = Random(seed)
    asked = prompts(random, 60)
    sizes = [random.choice([3, 8, 40]) for _ in range(3)]
    kept = p.make_prefixes(workload(asked), np.array(sizes))
    models = [Model(size) for size in sizes]
    open_chains: list[tuple[int, int, int, int]] = []
    depths = np.zeros(3, np.int64)
    for _ in range(400):
        request, worker = random.randrange(len(asked)), random.randrange(3)
        ids, model = asked[request], models[worker]
        action = random.random()
        if action < 0.5:
            found = p.num_found(kept, worker, request)
            assert found == model.num_found(ids)
            last = p.hold(kept, worker, request, found)
            last = p.publish(kept, worker, request, last, found, len(ids))
            model.hold(ids, 0, found)
            count = model.hold(ids, found, len(ids))
            open_chains.append((worker, request, count, last))
        elif action < 0.8 and open_chains:
            worker, request, count, last = open_chains.pop(random.randrange(len(open_chains)))
            p.let_go(kept, worker, last)
            models[worker].let_go(asked[request], count)
        elif action < 0.9:
            count = random.randint(1, 4)
            assert p.evict(kept, worker, count) == model.evict(count)
        elif not any(chain[0] == worker for chain in open_chains):
            p.forget(kept, worker)
            models[worker] = Model(sizes[worker])
        for number, other in enumerate(models):
            assert kept.workers[number, p.NUM_HELD] == len(other.uses)
            assert kept.workers[number, p.NUM_IDLE] == len(other.idle)
        longest = p.find_depths(kept, request, depths)
        assert list(depths) == [p.num_found(kept, k, request) for k in range(3)]
        assert longest == max(depths)


def test_the_end_of_a_chain_goes_first():
    kept = p.make_prefixes(workload([[1, 2, 3], [5]]), np.array([4]))
    p.let_go(kept, 0, p.publish(kept, 0, 0, 0, 0, 3))
    p.let_go(kept, 0, p.publish(kept, 0, 1, 0, 0, 1))
    left = []
    while p.evict(kept, 0, 1):
        left.append((p.num_found(kept, 0, 0), p.num_found(kept, 0, 1)))
    assert left == [(2, 1), (1, 1), (0, 1), (0, 0)]


def test_a_worker_that_keeps_nothing_finds_nothing():
    kept = p.make_prefixes(workload([[1], [1]]), np.array([0, 2]))
    assert p.publish(kept, 0, 0, 0, 0, 1) == 0
    p.let_go(kept, 1, p.publish(kept, 1, 0, 0, 0, 1))
    assert [p.num_found(kept, k, 1) for k in range(2)] == [0, 1]
