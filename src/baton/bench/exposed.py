"""Exposed transfer: from the source's last ready layer to the destination's last visible chunk."""

import asyncio
import statistics
import tempfile
from pathlib import Path

import msgspec

from baton.bench.traffic import make_request, prompt_of, run_request
from baton.config import BatonConfig, load_config
from baton.core.ids import Mode
from baton.errors import BatonError
from baton.runtime.deployment import Deployment, deploy
from baton.telemetry.trace.event import TraceEvent

WARMUPS = 2


class ExposedRow(msgspec.Struct, frozen=True, kw_only=True):
    """Medians for one schedule and prompt length, in milliseconds."""

    schedule: str
    prompt_tokens: int
    payload_mib: float
    exposed_ms: float
    layer_ms: float
    """One layer's transfer at the rate that the source measured: the part that cannot hide."""
    publish_ms: float
    """Last ready layer to publication: checksums, manifest and validation included."""

    @property
    def limit_ms(self) -> float:
        """What the layer schedule may expose: one layer's transfer plus 2 ms."""
        return self.layer_ms + 2.0


async def measure_exposed(
    model: str, lengths: tuple[int, ...], repeats: int, overrides: list[str]
) -> list[ExposedRow]:
    """Run cold prompts of each length under both schedules, each in a deployment of its own."""
    rows: list[ExposedRow] = []
    for schedule in ("layer", "request"):
        config = load_config(
            None, [f'model.name="{model}"', f'transfer.schedule="{schedule}"', *overrides]
        )
        with tempfile.TemporaryDirectory() as folder:
            traces = Path(folder)
            async with deploy(config, lambda *_: None, trace_dir=traces) as deployment:
                await deployment.wait_ready(config.cluster.start_timeout_s)
                sent = await _traffic(deployment, lengths, repeats)
                layer_us = await _layer_us(deployment, config, lengths)
            events = _read(traces)
        rows += [
            _row(schedule, length, sent[length], events, layer_us[length], deployment)
            for length in lengths
        ]
    return rows


async def _traffic(
    deployment: Deployment, lengths: tuple[int, ...], repeats: int
) -> dict[int, list[str]]:
    info = deployment.router.info
    assert info is not None
    sent: dict[int, list[str]] = {}
    for length in lengths:
        for repeat in range(repeats + WARMUPS):
            prompt = prompt_of(length, info.vocab_size, repeat)
            timed = await run_request(deployment, make_request(prompt, 2, salt=f"cold-{repeat}"))
            if timed.mode != Mode.DISAGGREGATED:
                raise BatonError(f"a benchmark request ran {timed.mode}")
            if repeat >= WARMUPS:
                sent.setdefault(length, []).append(timed.request_id)
    return sent


async def _layer_us(
    deployment: Deployment, config: BatonConfig, lengths: tuple[int, ...]
) -> dict[int, float]:
    await asyncio.sleep(2 * config.router.heartbeat_ms / 1000)
    info = deployment.router.info
    source = next(view for view in deployment.router.node.fleet if view.info.role == "prefill")
    assert info is not None and source.snapshot is not None
    rates = source.snapshot.rates
    step = config.worker.max_batch_tokens
    return {
        length: rates.transfer_overhead_us
        + info.layout.layer_block_nbytes
        * info.layout.num_blocks((length - 1) % step + 1)
        / rates.transfer_bytes_per_us
        for length in lengths
    }


def _read(folder: Path) -> dict[str, dict[str, int]]:
    decoder = msgspec.json.Decoder(TraceEvent)
    found: dict[str, dict[str, int]] = {}
    for path in folder.glob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            event = decoder.decode(line)
            if event.place != "router":
                found.setdefault(event.request_id, {})[event.name] = event.at_us
    return found


def _row(
    schedule: str,
    length: int,
    request_ids: list[str],
    events: dict[str, dict[str, int]],
    layer_us: float,
    deployment: Deployment,
) -> ExposedRow:
    info = deployment.router.info
    assert info is not None
    mine = [events[request_id] for request_id in request_ids]
    exposed = [e["all_visible"] - e["last_layer_ready"] for e in mine]
    publish = [e["published"] - e["last_layer_ready"] for e in mine]
    nbytes = info.layout.num_blocks(length) * info.layout.bytes_per_block
    return ExposedRow(
        schedule=schedule,
        prompt_tokens=length,
        payload_mib=nbytes / (1 << 20),
        exposed_ms=statistics.median(exposed) / 1000,
        layer_ms=layer_us / 1000,
        publish_ms=statistics.median(publish) / 1000,
    )
