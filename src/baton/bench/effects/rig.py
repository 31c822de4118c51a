"""A real pair of workers whose data planes keep a diary and whose link can be slowed."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from baton.bench.traffic import Timed, make_request, run_request
from baton.config import BatonConfig, load_config
from baton.core.ids import Mode
from baton.core.layout import KVLayout, ModelInfo
from baton.errors import BatonError
from baton.runtime.deployment import Deployment, deploy
from baton.runtime.diary import DiaryLine, read_diary
from baton.runtime.faults import FaultSpec
from baton.telemetry.trace.event import TraceEvent

SOURCE, DESTINATION = "prefill-0", "decode-1"
_HEARTBEAT_MS = 10
_POLL_S = 0.005
_PATIENCE_S = 10.0
_LAYOUTS: dict[str, KVLayout] = {}


class Handoff(msgspec.Struct, frozen=True, kw_only=True):
    """One answered request and everything that its K/V went through; times in microseconds."""

    timed: Timed
    put: tuple[DiaryLine, ...]
    """By chunk id, like `moved`, `received` and `visible`."""
    moved: tuple[DiaryLine, ...]
    received: tuple[DiaryLine, ...]
    visible: tuple[DiaryLine, ...]
    events_us: dict[str, int]
    """When the two workers traced what of this request, by the name of the event."""
    ledger: dict[str, int]
    """How far the destination's exported byte counters went, by their names."""

    @property
    def wire_nbytes(self) -> int:
        """What the data planes themselves moved: payload as copied, and notifications."""
        copied = sum(line.nbytes for line in self.moved)
        return copied + sum(line.framing_nbytes for line in self.received)

    @property
    def makespan_us(self) -> int:
        """First order to last read-back."""
        return max(v.at_us for v in self.visible) - min(p.at_us for p in self.put)


class Rig:
    """The pair while it runs; one request at a time."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        assert deployment.router.info is not None
        self.info: ModelInfo = deployment.router.info
        self.peak_inflight_nbytes = 0
        """Highest byte credit that a heartbeat of the source showed."""
        self._deployment = deployment
        self._folder = folder
        self._read = dict.fromkeys((SOURCE, DESTINATION), 0)

    def set_link(self, bytes_per_s: float) -> None:
        """Slow the link from source to destination; 0 frees it."""
        (self._folder / "link").write_text(str(bytes_per_s) if bytes_per_s else "")

    async def ask(self, prompt: tuple[int, ...], max_tokens: int = 2, salt: str = "") -> Handoff:
        """Serve one request. Raises BatonError when it did not go over the link."""
        before = await self._counters()
        watching = asyncio.create_task(self._watch())
        try:
            timed = await run_request(self._deployment, make_request(prompt, max_tokens, salt))
        finally:
            watching.cancel()
        if timed.mode != Mode.DISAGGREGATED:
            raise BatonError(f"a request of the measurement ran {timed.mode}")
        after = await self._counters()
        source, destination = await self._lines()
        return Handoff(
            timed=timed,
            put=_only("put", source),
            moved=_only("moved", source),
            received=_only("received", destination),
            visible=_only("visible", destination),
            events_us=self._events(timed.request_id),
            ledger={name: after.get(name, 0) - before.get(name, 0) for name in after},
        )

    async def _counters(self) -> dict[str, int]:
        """The destination's counters in a heartbeat that was sent after now."""
        view = self._deployment.router.node.fleet.get(DESTINATION)
        assert view is not None, "a ready deployment has its workers"
        seen = view.snapshot.version if view.snapshot else 0
        for _ in range(int(_PATIENCE_S / _POLL_S)):
            if view.snapshot is not None and view.snapshot.version >= seen + 3:
                return dict(view.snapshot.counters)
            await asyncio.sleep(_POLL_S)
        raise BatonError(f"{DESTINATION} has sent no heartbeat for {_PATIENCE_S:.0f} s")

    async def _watch(self) -> None:
        view = self._deployment.router.node.fleet.get(SOURCE)
        while view is not None:
            if view.snapshot is not None:
                inflight = view.snapshot.inflight_nbytes
                self.peak_inflight_nbytes = max(self.peak_inflight_nbytes, inflight)
            await asyncio.sleep(_POLL_S)

    async def _lines(self) -> tuple[list[DiaryLine], list[DiaryLine]]:
        """What both diaries say since the last time, once every order has its end."""
        for _ in range(int(_PATIENCE_S / _POLL_S)):
            every = {name: read_diary(self._folder / f"{name}.diary") for name in self._read}
            source, destination = (every[n][self._read[n] :] for n in (SOURCE, DESTINATION))
            counts = {len(_only(what, source)) for what in ("put", "moved")}
            counts |= {len(_only(what, destination)) for what in ("received", "visible")}
            if len(counts) == 1:
                self._read = {name: len(lines) for name, lines in every.items()}
                return source, destination
            await asyncio.sleep(_POLL_S)
        raise BatonError("the diaries of source and destination do not agree")

    def _events(self, request_id: str) -> dict[str, int]:
        decoder = msgspec.json.Decoder(TraceEvent)
        found: dict[str, int] = {}
        for name in (SOURCE, DESTINATION):
            for line in (self._folder / f"{name}.jsonl").read_bytes().splitlines():
                event = decoder.decode(line)
                if event.request_id == request_id:
                    found.setdefault(event.name, event.at_us)
        return found


def _only(what: str, lines: list[DiaryLine]) -> tuple[DiaryLine, ...]:
    return tuple(sorted((x for x in lines if x.what == what), key=lambda line: line.chunk_id))


def rig_config(model: str, overrides: list[str]) -> BatonConfig:
    """One prefill and one decode worker; what is measured here needs no self-test of the model."""
    fixed = [f'model.name="{model}"', "model.self_test=false"]
    return load_config(None, [*fixed, f"router.heartbeat_ms={_HEARTBEAT_MS}", *overrides])


@asynccontextmanager
async def open_rig(model: str, overrides: list[str] | None = None) -> AsyncIterator[Rig]:
    """Bring a pair up and take it down."""
    config = rig_config(model, overrides or [])
    with tempfile.TemporaryDirectory(prefix="baton-effects-") as name:
        folder = Path(name)

        def faults_of(worker_id: str, epoch: int) -> FaultSpec:
            del epoch
            diary = folder / f"{worker_id}.diary"
            diary.touch()
            link = str(folder / "link") if worker_id == SOURCE else ""
            return FaultSpec(diary=str(diary), link=link)

        deploying = deploy(config, lambda *_: None, trace_dir=folder, faults_of=faults_of)
        async with deploying as deployment:
            await deployment.wait_ready(config.cluster.start_timeout_s)
            rig = Rig(deployment, folder)
            _LAYOUTS[model] = rig.info.layout
            yield rig


async def layout_of(model: str) -> KVLayout:
    """The layout that a rig of this model has shown; starts one if none has been up yet."""
    if model not in _LAYOUTS:
        async with open_rig(model):
            pass
    return _LAYOUTS[model]
