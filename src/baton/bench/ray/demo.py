"""What `make demo-ray` shows, within the namespace of the head."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from baton.bench.network.namespaces import Namespace
from baton.bench.ray.nodes import PORT, Nodes
from baton.bench.ray.served import Served
from baton.runtime.dataplane.segments import SHM_DIR

_TOKENS = 24
_LONG = 160
_RECOVER_S = 240.0
_PROMPTS = (
    "What is the capital of France?",
    "Tell me a short story about a fox, a dog and a very long road to the sea.",
    "Name three prime numbers.",
)


class Demo:
    """Runs the steps; `failures` has what was not as it must be."""

    def __init__(self, head: Namespace, other: Namespace, model: str, folder: Path) -> None:
        self._nodes = Nodes(head, other, folder)
        self._model, self._folder = model, folder
        self._start_s = time.monotonic()
        self.failures: list[str] = []

    def run(self) -> None:
        """All steps, in order."""
        expected, long = self._colocated()
        try:
            self._nodes.start_head()
            self._nodes.start_other()
            self._say(f"two Ray nodes: {self._nodes.head.address}, {self._nodes.other.address}")
            address = f"ray://{self._nodes.head.address}:{PORT}"
            flags = ["--cluster", address, "--data-plane", "nixl", "--model", self._model]
            flags += ["--prefill", "1", "--decode", "2", "--set", "gateway.allow_drain=true"]
            flags += ["--set", "cluster.nodes=[0,1,1]"]
            served = Served(flags, self._folder / "serve-ray.log", self._nodes.environment)
            try:
                self._steps(served, expected, long)
            finally:
                code = served.stop()
            self._check("baton serve ended", code == 0, f"exit {code}")
        finally:
            self._nodes.close()
        left = sorted(path.name for path in SHM_DIR.glob(f"baton-{os.getpid()}-*"))
        self._check("nothing of it is left in shared memory", not left, ", ".join(left))

    def _steps(self, served: Served, expected: list[Any], long: Any) -> None:
        self._say("serving across them: " + ", ".join(sorted(served.workers())))
        self._compare("answers across nodes equal colocated ones", served, expected)
        lanes = served.lanes()
        self._check("K/V crossed by NIXL over tcp", "by tcp" in lanes, lanes or "no orders")
        self._kill_worker(served, long)
        self._compare("answers after it", served, expected)
        there = {
            name: one["epoch"]
            for name, one in served.workers().items()
            if not self._nodes.owns(one["pid"])
        }
        self._nodes.kill_other()
        self._say("the second node is killed at once, with " + ", ".join(sorted(there)))
        self._nodes.start_other()
        took_s = served.until_replaced(there, _RECOVER_S)
        self._say(f"a node is back; every worker serves {took_s:.1f} s after it joined")
        self._compare("answers after the loss of a node", served, expected)
        self._drain(served)
        self._compare("answers after the drain", served, expected)
        left = served.leftovers()
        self._check("no block and no copy is held", not left, ", ".join(left))

    def _colocated(self) -> tuple[list[Any], Any]:
        served = Served(
            ["--mixed", "1", "--model", self._model],
            self._folder / "serve-colocated.log",
            dict(os.environ),
        )
        try:
            answers = [served.chat(prompt, _TOKENS) for prompt in _PROMPTS]
            long = served.chat(_PROMPTS[1], _LONG)
        finally:
            served.stop()
        self._say(f"colocated reference: {len(answers) + 1} answers of {self._model}")
        return answers, long

    def _kill_worker(self, served: Served, long: Any) -> None:
        """A worker that this side of the network can reach dies while an answer streams."""
        mine = {name: one for name, one in served.workers().items() if self._nodes.owns(one["pid"])}
        name = sorted(mine)[0]
        got: list[Any] = []
        asking = threading.Thread(target=lambda: got.append(served.chat(_PROMPTS[1], _LONG)))
        asking.start()
        time.sleep(0.1)
        os.kill(mine[name]["pid"], signal.SIGKILL)
        asking.join(_RECOVER_S)
        self._check(f"{name} killed under an answer: the answer is equal", got == [long])
        took_s = served.until_replaced({name: mine[name]["epoch"]}, _RECOVER_S)
        self._say(f"{name} serves as epoch {served.workers()[name]['epoch']} {took_s:.1f} s later")

    def _drain(self, served: Served) -> None:
        name = sorted(one for one in served.workers() if one.startswith("decode"))[0]
        command = [sys.executable, "-c", "from baton.cli import main; main()", "drain", name]
        done = subprocess.run([*command, "--url", served.url], capture_output=True, text=True)
        said = (done.stdout or done.stderr).strip()
        self._check(f"baton drain {name}", done.returncode == 0, said)

    def _compare(self, what: str, served: Served, expected: list[Any]) -> None:
        answers = [served.chat(prompt, _TOKENS) for prompt in _PROMPTS]
        num_tokens = sum(len(one) for one in answers)
        equal = answers == expected
        self._check(what, equal, f"{num_tokens} tokens with their log-probabilities")

    def _check(self, what: str, is_good: bool, detail: str = "") -> None:
        self._say(f"{'ok  ' if is_good else 'FAIL'} {what}" + (f": {detail}" if detail else ""))
        if not is_good:
            self.failures.append(what)

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._start_s:6.1f} s] {text}", flush=True)
