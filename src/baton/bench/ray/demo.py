"""What `make demo-ray` shows, within the namespace of the head."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from baton.bench.network.namespaces import Namespace
from baton.bench.ray.nodes import PORT, Nodes, cable_nbytes, parent_of
from baton.bench.ray.served import Served
from baton.core.ids import Role
from baton.hardware.parallel import Parallel
from baton.planner.deploy.baton_config import baton_toml
from baton.planner.deploy.blueprint import Blueprint, Pool, pack_stages
from baton.planner.deploy.target import Target
from baton.runtime.dataplane.segments import SHM_DIR

_TOKENS = 24
_LONG = 160
_RECOVER_S = 240.0
_PROOF_S = 60.0
_LONG_PROMPTS = tuple(f"{word} and again " * 60 for word in ("one", "two", "three", "four"))
_CROSSING_NBYTES = 256 << 10
"""Less than the K/V of one of these, and more than everything else sends in that time."""
_KV_TOKENS, _TOKEN_NBYTES, _MAX_MODEL_LEN = 8192, 4096, 2048
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
            flags = ["--config", str(self._plan()), "--cluster", address]
            flags += ["--set", "gateway.allow_drain=true"]
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

    def _plan(self) -> Path:
        """The planner's file: two workers on the first node, the third on another one."""
        pools = [
            Pool(role=role, num_workers=count, parallel=Parallel(), kv_tokens=_KV_TOKENS)
            for role, count in ((Role.PREFILL, 1), (Role.DECODE, 2))
        ]
        blueprint = Blueprint(pools=tuple(pools), stages=pack_stages(pools, 2))
        target = Target(
            model=self._model,
            max_model_len=_MAX_MODEL_LEN,
            token_nbytes=_TOKEN_NBYTES,
            ttft_ms=1000,
            tpot_ms=100,
            gpus_per_node=2,
            is_cpu=True,
        )
        path = self._folder / "baton.toml"
        path.write_text(baton_toml(blueprint, target))
        return path

    def _steps(self, served: Served, expected: list[Any], long: Any) -> None:
        self._say("serving across them: " + ", ".join(sorted(served.workers())))
        there = {
            name: one["epoch"]
            for name, one in served.workers().items()
            if not self._nodes.owns(one["pid"])
        }
        self._check("the plan's third worker is on the other node", set(there) == {"decode-2"})
        printed, told = served.digests()
        self._check("one configuration digest", printed == told, f"{printed} and {told}")
        self._compare("answers across nodes equal colocated ones", served, expected)
        self._cross(served)
        self._kill_worker(served, long)
        self._compare("answers after it", served, expected)
        self._kill_keeper(served)
        self._compare("answers after the loss of a keeper", served, expected)
        self._nodes.kill_other()
        self._say("the second node is killed at once, with " + ", ".join(sorted(there)))
        self._compare("answers without that node", served, expected)
        self._nodes.start_other()
        took_s = served.until_replaced(there, _RECOVER_S)
        self._say(f"a node is back; every worker serves {took_s:.1f} s after it joined")
        self._compare("answers after the loss of a node", served, expected)
        for name in there:
            self._drain(served, name)
        self._nodes.kill_other()
        self._say("its node is removed")
        self._compare("answers after the drain and the removal", served, expected)
        self._check("no request met an error", not served.failures(), served.failures())
        left = served.leftovers()
        self._check("no block and no copy is held", not left, ", ".join(left))

    def _cross(self, served: Served) -> None:
        """Long prompts at once, so that some go to either decode worker."""
        before = cable_nbytes()
        with ThreadPoolExecutor(len(_LONG_PROMPTS)) as asking:
            list(asking.map(lambda prompt: served.chat(prompt, 1), _LONG_PROMPTS))
        crossed = cable_nbytes() - before
        lanes = served.lanes("tcp", _PROOF_S)
        self._check(
            "K/V crossed by NIXL over tcp",
            "tcp" in lanes and crossed > _CROSSING_NBYTES,
            f"{lanes or 'no orders'}; {crossed} bytes left this node meanwhile",
        )

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

    def _kill_keeper(self, served: Served) -> None:
        """The process that watches a worker dies, and nobody sees the end of the worker."""
        name, epoch = "decode-1", served.workers()["decode-1"]["epoch"]
        worker = served.workers()[name]["pid"]
        os.kill(parent_of(worker), signal.SIGKILL)
        took_s = served.until_replaced({name: epoch}, _RECOVER_S)
        self._say(f"the keeper of {name} is killed; it serves again {took_s:.1f} s later")
        is_proven = served.has_said(f"{name}: epoch {epoch} is proven to have ended", _PROOF_S)
        self._check(f"the end of {name}'s lost life is proven", is_proven)
        self._check("and it has ended", not Path(f"/proc/{worker}").exists())

    def _drain(self, served: Served, name: str) -> None:
        command = [sys.executable, "-c", "from baton.cli import main; main()", "drain", name]
        done = subprocess.run([*command, "--url", served.url], capture_output=True, text=True)
        said = (done.stdout or done.stderr).strip()
        self._check(f"baton drain {name}", done.returncode == 0, said)

    def _compare(self, what: str, served: Served, expected: list[Any]) -> None:
        with ThreadPoolExecutor(len(_PROMPTS)) as asking:  # at once, so that every worker has one
            answers = list(asking.map(lambda prompt: served.chat(prompt, _TOKENS), _PROMPTS))
        num_tokens = sum(len(one) for one in answers)
        equal = answers == expected
        self._check(what, equal, f"{num_tokens} tokens with their log-probabilities")

    def _check(self, what: str, is_good: bool, detail: str = "") -> None:
        self._say(f"{'ok  ' if is_good else 'FAIL'} {what}" + (f": {detail}" if detail else ""))
        if not is_good:
            self.failures.append(what)

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._start_s:6.1f} s] {text}", flush=True)
