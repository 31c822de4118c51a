"""A `baton serve` process, asked over HTTP."""

import contextlib
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from baton.errors import BatonError

_READY_S = 300.0
_STOP_S = 60.0
_URL = re.compile(r"ready at (http://\S+);")
_DIGEST = re.compile(r"configuration (\w+),")
_ENDED = re.compile(r'baton_requests_ended_total\{state="(\w+)"\} (\d+)')
_BLOCKS = re.compile(r'baton_kv_blocks\{worker="([^"]+)",state="(quarantined|reserved)"\} (\S+)')
_COPIES = re.compile(r'baton_source_copies\{worker="([^"]+)"\} (\S+)')
_LANES = re.compile(
    r'baton_worker_events_total\{worker="([^"]+)",event="plane_orders_([\w+]+)"\} (\S+)'
)


class Served:
    """One deployment, from its start to its end."""

    def __init__(self, flags: list[str], log: Path, environment: dict[str, str]) -> None:
        self._log = log
        command = [sys.executable, "-c", "from baton.cli import main; main()", "serve", *flags]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "--port", "0"],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._url = self._wait_url()

    def chat(self, text: str, max_tokens: int) -> list[Any]:
        """The tokens of an answer, with the log-probability of each."""
        body = {
            "model": self.get("/v1/models")["data"][0]["id"],
            "messages": [{"role": "user", "content": text}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "logprobs": True,
        }
        answer = self._ask("/v1/chat/completions", msgspec.json.encode(body))
        content = msgspec.json.decode(answer)["choices"][0]["logprobs"]["content"]
        return [(one["token"], one["logprob"]) for one in content]

    def get(self, path: str) -> Any:
        """What a path answers, as JSON."""
        return msgspec.json.decode(self._ask(path))

    def workers(self) -> dict[str, dict[str, Any]]:
        """The live workers by id."""
        return {one["id"]: one for one in self.get("/version")["status"]["workers"]}

    def digests(self) -> tuple[str, str]:
        """Of the configuration: as it was printed at start, and as /version says it."""
        found = _DIGEST.search(self._log.read_text(errors="replace"))
        return found[1] if found else "none", self.get("/version")["status"]["config_digest"]

    def has_said(self, text: str, timeout_s: float) -> bool:
        """Whether its output has this text, or gets it in that time."""
        deadline_s = time.monotonic() + timeout_s
        while text not in " ".join(self._log.read_text(errors="replace").split()):
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.2)
        return True

    def failures(self) -> str:
        """How many requests ended otherwise than finished, by how."""
        found = _ENDED.findall(self._ask("/metrics").decode())
        if not any(state == "finished" for state, _ in found):
            raise BatonError("/metrics names no finished request, so nothing can be said of others")
        other = [f"{count} {state}" for state, count in found if state != "finished"]
        return ", ".join(one for one in other if not one.startswith("0 "))

    def lanes(self, wanted: str, timeout_s: float) -> str:
        """Which ways orders took, and how many: once one went that way, or after so long."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            found = _LANES.findall(self._ask("/metrics").decode())
            if any(wanted in lane for _, lane, _ in found) or time.monotonic() > deadline_s:
                return ", ".join(f"{count} of {worker} by {lane}" for worker, lane, count in found)
            time.sleep(0.2)

    def leftovers(self, timeout_s: float = 20.0) -> list[str]:
        """What is still held once nothing is asked any more, after at most so long."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            text = self._ask("/metrics").decode()
            found = [f"{w}: {n} {s}" for w, s, n in _BLOCKS.findall(text) if float(n)]
            found += [f"{w}: {n} source copies" for w, n in _COPIES.findall(text) if float(n)]
            if not _BLOCKS.search(text):
                raise BatonError("/metrics names no blocks, so nothing can be said of leftovers")
            if not found or time.monotonic() > deadline_s:
                return found
            time.sleep(0.5)

    def until_replaced(self, epochs: dict[str, int], timeout_s: float) -> float:
        """Wait until later lives of these workers serve; returns after how many seconds."""
        start_s = time.monotonic()
        while time.monotonic() - start_s < timeout_s:
            with contextlib.suppress(OSError):
                self._ask("/ready")
                now = self.workers()
                if all(name in now and now[name]["epoch"] > old for name, old in epochs.items()):
                    return time.monotonic() - start_s
            if self._process.poll() is not None:
                break
            time.sleep(0.2)
        raise BatonError(f"not ready again after {timeout_s:g} s; see {self._log}")

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    @property
    def url(self) -> str:
        """Where it listens."""
        return self._url

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(
            self._url + path, body, {"Content-Type": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=120) as answer:
            return bytes(answer.read())

    def _wait_url(self) -> str:
        deadline_s = time.monotonic() + _READY_S
        while time.monotonic() < deadline_s:
            text = self._log.read_text(errors="replace")
            if match := _URL.search(text):
                return match[1]
            if self._process.poll() is not None:
                break
            time.sleep(0.2)
        last = "".join(self._log.read_text(errors="replace").strip().splitlines()[-1:])
        self.stop()
        raise BatonError(f"baton serve did not come up: {last}; see {self._log}")
