"""One prefill and one decode worker under a cache setting, and what their counters say."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from baton.bench.traffic import Timed, make_request, prompt_of, run_request
from baton.config import load_config
from baton.core.ids import Mode
from baton.core.layout import ModelInfo
from baton.core.snapshot import LoadSnapshot
from baton.errors import BatonError
from baton.runtime.deployment import Deployment, deploy
from baton.telemetry.trace.event import TraceEvent

SOURCE, DESTINATION = "prefill-0", "decode-1"
_HEARTBEAT_MS = 20
_POLL_S = 0.005
_PATIENCE_S = 20.0
_WARM_TOKENS = 40
_LOGICAL = ("handoff_logical_bytes", "copy_logical_bytes")


class Pair:
    """The deployment while it runs; one request at a time."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        assert deployment.router.info is not None
        self.info: ModelInfo = deployment.router.info
        self._deployment = deployment
        self._folder = folder

    async def ask(self, prompt: Sequence[int], max_tokens: int, salt: str) -> Timed:
        """Serve one request. Raises BatonError when prefill and decode did not both serve it."""
        timed = await run_request(self._deployment, make_request(tuple(prompt), max_tokens, salt))
        if timed.mode != Mode.DISAGGREGATED:
            raise BatonError(f"a request of the measurement ran {timed.mode}")
        return timed

    async def warm_up(self) -> None:
        """First steps pay for what no later one does."""
        for number in range(2):
            prompt = prompt_of(_WARM_TOKENS, self.info.vocab_size, number)
            await self.ask(prompt, 4, f"warm-up {number}")

    async def snapshots(self) -> dict[str, LoadSnapshot]:
        """Both workers in heartbeats that were sent after now."""
        fleet = self._deployment.router.node.fleet
        seen = {view.info.worker_id: view.snapshot for view in fleet}
        versions = {name: shot.version if shot else 0 for name, shot in seen.items()}
        for _ in range(int(_PATIENCE_S / _POLL_S)):
            fresh = {view.info.worker_id: view.snapshot for view in fleet}
            if all(s is not None and s.version >= versions[n] + 3 for n, s in fresh.items()):
                return {name: shot for name, shot in fresh.items() if shot is not None}
            await asyncio.sleep(_POLL_S)
        raise BatonError(f"a worker has sent no heartbeat for {_PATIENCE_S:.0f} s")

    async def received(self) -> dict[str, int]:
        """Bytes of K/V rows that each worker has taken over the link, so far: what a decode worker
        takes comes by handoffs, what a prefill worker takes by copies."""
        shots = await self.snapshots()
        return {n: sum(s.counters.get(one, 0) for one in _LOGICAL) for n, s in shots.items()}

    async def worker_counter(self, worker_id: str, name: str) -> int:
        """A named outcome at a worker, in a heartbeat that was sent after now."""
        return (await self.snapshots())[worker_id].counters.get(name, 0)

    @property
    def num_copies(self) -> int:
        """Copies of history that are under way."""
        return len(self._deployment.router.node.copies)

    def counter(self, name: str) -> int:
        """A named outcome at the router."""
        return self._deployment.router.node.counters[name]

    def traced(self, name: str) -> list[TraceEvent]:
        """What the router has traced under this name."""
        decoder = msgspec.json.Decoder(TraceEvent)
        lines = (self._folder / "router.jsonl").read_bytes().splitlines()
        return [event for event in map(decoder.decode, lines) if event.name == name]


@asynccontextmanager
async def open_pair(model: str, *overrides: str) -> AsyncIterator[Pair]:
    """Bring a pair up, warm, and take it down; the model needs no self-test for this."""
    fixed = [f'model.name="{model}"', "model.self_test=false"]
    config = load_config(None, [*fixed, f"router.heartbeat_ms={_HEARTBEAT_MS}", *overrides])
    with tempfile.TemporaryDirectory(prefix="baton-cache-") as name:
        folder = Path(name)
        async with deploy(config, lambda *_: None, trace_dir=folder) as deployment:
            await deployment.wait_ready(config.cluster.start_timeout_s)
            pair = Pair(deployment, folder)
            await pair.warm_up()
            yield pair
