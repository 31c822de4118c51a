"""X7: K/V that leaves layer by layer hides behind compute; K/V that leaves at the end does not."""

import statistics
from itertools import pairwise

import msgspec

from baton.bench.effects.effect import Effect
from baton.bench.effects.rig import Handoff, Rig, open_rig
from baton.bench.traffic import prompt_of
from baton.policy.schedule import layer_visible_times, request_visible_time

_PROMPT = 256
_WARMUPS = 2
_ROUNDS = 5
_SHARES = {"fast": 0.5, "slow": 1.5}
"""Transfer time of one layer, of the time in which the source computes a layer."""
_SHARE, _SLACK_MS = 0.10, 2.0


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over `n` prompts of one schedule on one link, in milliseconds."""

    schedule: str
    link: str
    n: int
    layer_ms: float
    """Between the layers of the source, while it computes."""
    transfer_ms: float
    """One layer's bytes on the link."""
    exposed_ms: float
    """Last layer ready to everything visible, as measured."""
    predicted_ms: float
    """The same by the recurrence over the ready and transfer times of the same prompts."""

    @property
    def slack_ms(self) -> float:
        """How far measurement and recurrence may be apart."""
        return max(_SHARE * self.predicted_ms, _SLACK_MS)

    @property
    def agrees(self) -> bool:
        """True within the slack."""
        return abs(self.exposed_ms - self.predicted_ms) <= self.slack_ms


def predicted_us(handoff: Handoff, schedule: str) -> float:
    """What stays exposed after the last layer, by the recurrence over measured times.

    `layer`: v_l = max(r_l, v_{l-1}) + x_l. `request`: the whole prompt is ready when its step is
    over, a little after the last layer's K/V, and then all transfers follow each other.
    """
    events, durations = handoff.events_us, [line.duration_us for line in handoff.moved]
    last_us = events["last_layer_ready"]
    if schedule == "request":
        return request_visible_time([events["prefill_done"]], durations) - last_us
    ready = [line.at_us for line in handoff.put]
    return layer_visible_times(ready, durations)[-1] - last_us


def exposed_us(handoff: Handoff) -> float:
    """Last layer ready to all visible."""
    return handoff.events_us["all_visible"] - handoff.events_us["last_layer_ready"]


async def _layer_time(rig: Rig, rounds: int) -> tuple[float, int]:
    """Median time between layers in microseconds, and the bytes of one layer."""
    gaps: list[int] = []
    handoff = None
    for number in range(_WARMUPS + rounds):
        handoff = await rig.ask(_prompt(rig), salt=f"free-{number}")
        if number >= _WARMUPS:
            at_us = [line.at_us for line in handoff.put]
            gaps += [b - a for a, b in pairwise(at_us)]
    assert handoff is not None
    return statistics.median(gaps), handoff.put[0].nbytes


def _prompt(rig: Rig) -> tuple[int, ...]:
    length = min(_PROMPT, rig.info.max_model_len // 2)
    return prompt_of(length, rig.info.vocab_size, 3)


async def _expose(rig: Rig, schedule: str, link: str, layer_us: float) -> Exposure:
    handoffs = []
    for number in range(1 + _ROUNDS):
        handoffs.append(await rig.ask(_prompt(rig), salt=f"{link}-{number}"))
    handoffs = handoffs[1:]
    layers = rig.info.layout.num_layers
    per_layer = [sum(m.duration_us for m in one.moved) / layers for one in handoffs]
    measured = [exposed_us(one) for one in handoffs]
    predicted = [predicted_us(one, schedule) for one in handoffs]
    if schedule == "layer":
        at_us = [[line.at_us for line in one.put] for one in handoffs]
        gaps = [b - a for one in at_us for a, b in pairwise(one)]
        layer_us = statistics.median(gaps)
    return Exposure(
        schedule=schedule,
        link=link,
        n=len(handoffs),
        layer_ms=layer_us / 1000,
        transfer_ms=statistics.median(per_layer) / 1000,
        exposed_ms=statistics.median(measured) / 1000,
        predicted_ms=statistics.median(predicted) / 1000,
    )


async def measure_overlap(model: str) -> Effect:
    """Both schedules on a link faster, and one slower, than the source computes layers."""
    rows: dict[tuple[str, str], Exposure] = {}
    layer_us, nbytes = 0.0, 0
    for schedule in ("layer", "request"):
        async with open_rig(model, [f'transfer.schedule="{schedule}"']) as rig:
            if schedule == "layer":
                layer_us, nbytes = await _layer_time(rig, 3)
            for link, share in _SHARES.items():
                rig.set_link(nbytes / (share * layer_us / 1e6))
                rows[schedule, link] = await _expose(rig, schedule, link, layer_us)
    return judge_overlap(rows)


def judge_overlap(rows: dict[tuple[str, str], Exposure]) -> Effect:
    """Hold the four rows against the recurrence and against each other."""
    fast, slow = rows["layer", "fast"], rows["layer", "slow"]
    hides = abs(fast.exposed_ms - fast.transfer_ms) <= max(_SHARE * fast.transfer_ms, _SLACK_MS)
    shown = "; ".join(
        f"{row.schedule}, x={row.transfer_ms:.1f} ms of a layer's {row.layer_ms:.1f}: exposed "
        f"{row.exposed_ms:.1f} ms, recurrence {row.predicted_ms:.1f}"
        for row in rows.values()
    )
    gain = rows["request", "fast"].exposed_ms / fast.exposed_ms
    return Effect(
        id="X7",
        title="Layer-wise against serialized, on a throttled link",
        measured=f"{shown} (medians of {fast.n} prompts each); serialized exposes {gain:.0f}x on "
        "the fast link",
        accept=(
            "within 10 % or 2 ms of the recurrence on all four; one layer exposed where "
            "x < layer time; more than one where it is not"
        ),
        met=all(row.agrees for row in rows.values())
        and fast.transfer_ms < fast.layer_ms
        and hides
        and slow.transfer_ms > slow.layer_ms
        and slow.exposed_ms > slow.transfer_ms + _SLACK_MS,
        figures={"rows": list(rows.values())},
    )
