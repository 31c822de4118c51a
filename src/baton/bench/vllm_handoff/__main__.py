"""`python -m baton.bench.vllm_handoff --keys DIR ...`: figures of a running pair, beside limits.

Added time: the decode leg of a pull with one token, less the same request again, whose prompt is
then in the decode server's own prefix cache; both compute one row. Decode step: a server with the
connector and one without, in turn on one core.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from baton.bench.vllm_handoff.pair import Pair, complete
from baton.core.ids import Direction
from baton.errors import BatonError

_LENGTHS = (129, 513, 1537)
"""One more than whole blocks of 32, so that one row is left to compute."""
_ALLOWED_MS = 10.0
_DECODE_TOKENS = 48
_MAX_DECODE_RATIO = 1.02


def _prompt(length: int, salt: int) -> list[int]:
    return [1000 + (7919 * salt + 31 * position) % 40_000 for position in range(length)]


def _timed(url: str, body: dict[str, Any]) -> float:
    began_s = time.perf_counter()
    complete(url, body)
    return time.perf_counter() - began_s


def added(pair: Pair, model: str, rounds: int) -> None:
    """Print what a handoff adds to the first token, for each length."""
    salt = time.time_ns() % 1_000_003
    for length in _LENGTHS:
        ours, plain = [], []
        before = pair.statuses()[1].counters
        for _ in range(rounds):
            salt += 1
            body = {"model": model, "prompt": _prompt(length, salt), "max_tokens": 1}
            body["temperature"] = 0
            ours.append(pair.hand_over(body, Direction.PULL)[1])
            plain.append(_timed(pair.decode_url, body))
        status = pair.statuses()[1]
        count = status.counters.get("published_loads", 0) - before.get("published_loads", 0)
        load_ms = (status.counters["load_us"] - before.get("load_us", 0)) / 1000 / max(1, count)
        layout = status.info.layout
        nbytes = layout.num_blocks(length) * layout.bytes_per_block
        payload_ms = nbytes / status.bytes_per_us / 1000
        added_ms = 1000 * statistics.median(a - b for a, b in zip(ours, plain, strict=True))
        least_ms = 1000 * (min(ours) - min(plain))
        print(
            f"{length} tokens, {nbytes / 2**20:.1f} MiB, {count}/{rounds} published: added "
            f"{added_ms:.1f} ms median, {least_ms:.1f} ms between the quickest; order to "
            f"publication {load_ms:.1f} ms mean; limit {payload_ms + _ALLOWED_MS:.1f} ms "
            f"(payload {payload_ms:.1f} at {status.bytes_per_us / 1000:.2f} GB/s + {_ALLOWED_MS})"
        )


def decode_step(with_url: str, without_url: str, model: str, rounds: int) -> None:
    """Print the decode step of a server with the connector over that of one without."""
    body = {"model": model, "prompt": _prompt(65, 1), "temperature": 0, "ignore_eos": True}
    urls = {"with": with_url, "without": without_url}
    steps: dict[str, list[float]] = {name: [] for name in urls}
    for _ in range(rounds):
        for name, url in urls.items():
            one = _timed(url, {**body, "max_tokens": 1})
            many = _timed(url, {**body, "max_tokens": _DECODE_TOKENS})
            steps[name].append(1000 * (many - one) / (_DECODE_TOKENS - 1))
    ratios = [a / b for a, b in zip(steps["with"], steps["without"], strict=True)]
    print(
        f"decode step: with {min(steps['with']):.2f} ms, without {min(steps['without']):.2f} ms at "
        f"the quickest, ratio {min(steps['with']) / min(steps['without']):.3f}; median of ratios "
        f"in turn {statistics.median(ratios):.3f}; limit {_MAX_DECODE_RATIO}"
    )


def main() -> None:
    """Measure what the flags name."""
    flags = argparse.ArgumentParser(prog="python -m baton.bench.vllm_handoff", description=__doc__)
    flags.add_argument("--keys", type=Path, help="folder of member.json and issuer.json")
    flags.add_argument("--prefill-url", default="http://127.0.0.1:8101")
    flags.add_argument("--decode-url", default="http://127.0.0.1:8102")
    flags.add_argument("--prefill-control", default="tcp://127.0.0.1:7501")
    flags.add_argument("--decode-control", default="tcp://127.0.0.1:7601")
    flags.add_argument("--plain-url", help="a server without the connector, on the core of ...")
    flags.add_argument("--with-url", help="... this one with it")
    flags.add_argument("--model", default="smollm2")
    flags.add_argument("--rounds", type=int, default=8)
    asked = flags.parse_args()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} cores, load {load}")
    try:
        if asked.keys is not None:
            controls = (asked.prefill_control, asked.decode_control)
            pair = Pair(asked.keys, asked.prefill_url, asked.decode_url, controls)
            added(pair, asked.model, asked.rounds)
        if asked.plain_url and asked.with_url:
            decode_step(asked.with_url, asked.plain_url, asked.model, asked.rounds)
    except BatonError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
