"""Dynamo's offline replay, from a virtual environment that has it."""

import json
import os
import time
from pathlib import Path
from typing import Any

from baton.bench.sim.children import run_child
from baton.bench.sim.outcome import PeerOutcome
from baton.bench.sim.scenes import LINK_BYTES_PER_US, TOKEN_NBYTES, Scene
from baton.bench.sim.traces import TOKENS_PER_HASH
from baton.errors import BatonError, ConfigError

RELEASE = "1.4.2"
_TIMEOUT_S = 600.0


class Dynamo:
    """`python -m dynamo.replay` with the engine that it has built in."""

    def __init__(self, python: str, folder: Path) -> None:
        self._python, self._folder = python, folder
        version = self._run(
            ["-c", "from importlib.metadata import version; print(version('ai-dynamo'))"]
        ).strip()
        if version != RELEASE:
            raise ConfigError(
                f"--dynamo-python {python} has ai-dynamo {version}; the comparison is with "
                f"{RELEASE}: pip install ai-dynamo=={RELEASE}"
            )

    def replay(self, scene: Scene, trace: Path) -> PeerOutcome:
        """One process over one trace. Raises BatonError."""
        report = self._folder / f"dynamo-{scene.name}.json"
        mode = "kv_router" if scene.is_kv_aware else "round_robin"
        command = ["-m", "dynamo.replay", str(trace), "--trace-format", "mooncake"]
        command += ["--trace-block-size", str(TOKENS_PER_HASH), "--router-mode", mode]
        command += [*_workers(scene), "--report-json", str(report)]
        begin = time.perf_counter()
        self._run(command)
        process_s = time.perf_counter() - begin
        told: dict[str, Any] = json.loads(report.read_bytes())
        if told["completed_requests"] != told["num_requests"]:
            raise BatonError(
                f"{scene.name}: Dynamo completed {told['completed_requests']} requests"
            )
        return PeerOutcome(
            num_requests=told["num_requests"],
            loop_s=told["wall_time_ms"] / 1000,
            process_s=process_s,
            mean_ttft_ms=told["mean_ttft_ms"],
            p99_ttft_ms=told["p99_ttft_ms"],
            mean_tpot_ms=told["mean_tpot_ms"],
            reused=told["prefix_cache_reused_ratio"],
        )

    def _run(self, arguments: list[str]) -> str:
        environment = {**os.environ, "DYN_LOG": "off"}
        try:
            told = run_child([self._python, *arguments], environment, _TIMEOUT_S, self._folder)
        except OSError as problem:
            raise ConfigError(
                f"--dynamo-python {self._python}: {problem.strerror}; name the Python of a virtual "
                f"environment that has ai-dynamo=={RELEASE}"
            ) from None
        return told.decode(errors="replace")


def _workers(scene: Scene) -> list[str]:
    engine: dict[str, object] = {
        "block_size": TOKENS_PER_HASH,
        "kv_bytes_per_token": TOKEN_NBYTES,
        "kv_transfer_bandwidth": LINK_BYTES_PER_US / 1000,
    }
    if scene.num_mixed:
        own = json.dumps({"block_size": TOKENS_PER_HASH})
        return ["--num-workers", str(scene.num_mixed), "--extra-engine-args", own]
    flags = []
    for role, count in (("prefill", scene.num_prefill), ("decode", scene.num_decode)):
        flags += [f"--num-{role}-workers", str(count)]
        flags += [f"--{role}-engine-args", json.dumps({**engine, "worker_type": role})]
    return flags
