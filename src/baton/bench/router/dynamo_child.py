"""Runs inside a virtual environment that has ai-dynamo-runtime, not Baton: times its RadixTree.

Speaks the lines of `baton.bench.router.peer`; imports nothing of ours.
"""

import gc
import json
import sys
import time
from importlib.metadata import version
from typing import Any


def main() -> None:
    """Answer one line after the other until stdin ends."""
    from dynamo._core import RadixTree

    tree = RadixTree()
    print(version("ai-dynamo-runtime"), flush=True)
    spent_ns = num_stored = 0
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        if "store" in order:
            event = json.dumps(order["store"]).encode()
            num_stored += len(order["store"]["data"]["stored"]["blocks"])
            begin = time.perf_counter_ns()
            tree.apply_event(order["worker"], event)
            spent_ns += time.perf_counter_ns() - begin
        elif "rate" in order:
            tree.find_matches([1])  # behind every event in the tree's own queue
            print(json.dumps(num_stored * 1e9 / spent_ns), flush=True)
        elif "depths" in order:
            found = [tree.find_matches(names).scores for names in order["depths"]]
            print(json.dumps([{key[0]: n for key, n in one.items()} for one in found]), flush=True)
        else:
            print(json.dumps(_times(tree, order["match"])), flush=True)


def _times(tree: Any, questions: list[list[int]]) -> list[float]:
    gc.collect()
    samples = []
    for names in questions:
        begin = time.perf_counter_ns()
        _ = tree.find_matches(names).scores
        samples.append((time.perf_counter_ns() - begin) / 1000)
    return samples


if __name__ == "__main__":
    main()
