"""From timings of single layers to the curves of a whole step.

A step is: embedding; each layer's norms, projections, attention and feed-forward or experts with
the collectives between GPUs; the last norm; vocabulary head and sampler for every sequence.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from baton.hardware.curves import Domain, Grid, Line, StepCurves, StepSide
from baton.hardware.layers.collectives import Link, all_gather_us, all_reduce_us
from baton.hardware.layers.cut import Cut
from baton.hardware.layers.experts import local_woken
from baton.hardware.layers.profile import LayerProfile
from baton.hardware.layers.skew import Spread
from baton.hardware.missing import MissingCell
from baton.hardware.model_shape import ModelShape

_ONCE = ("embedding", "final_layernorm")
_FEED_FORWARD = ("gate_up_proj", "up_proj", "act_fn", "down_proj")
_TWICE = ("layernorm",)
"""Of a layer: before attention and before the feed-forward."""
_ACTIVATION_NBYTES = 2.0


class Composer:
    """One model's layers, counted."""

    def __init__(
        self,
        profile: LayerProfile,
        model: ModelShape,
        cut: Cut,
        link: Link,
        spread: Spread | None = None,
    ) -> None:
        self.profile, self.model, self.cut = profile, model, cut
        self.link, self.spread = link, spread
        _check(profile, model, cut)

    def curves(self) -> StepCurves:
        """Of one rank with all its GPUs."""
        attention = self.profile.attention
        layers, launch_us = self.model.num_attention_layers, attention.launch_us
        first_us, more_us = self.head_us(1), self._more_sequences_us(attention.decode.x[-1])
        side = StepSide(
            step_us=first_us,
            rows=self._rows(),
            # One launch for all chunks, and the first one's sequence is in step_us.
            prefill_us=layers * launch_us - more_us,
            prefill_attention=_changed(attention.prefill, lambda us, _: layers * (us - launch_us)),
            chunk_us=more_us,
            decode_grid=self._decode(),
            mixed_rows=_changed(attention.mixed_rows, lambda us, _: layers * us),
            mixed_decode=_changed(
                attention.mixed_decode,
                lambda us, n: layers * us + self.head_us(n) - first_us + more_us,
            ),
            group_rows=self._group() if self.cut.dp > 1 and self.model.num_moe_layers else None,
        )
        return StepCurves(sides=(side,), source=self._source(), domain=self._domain())

    def rows_us(self, num_rows: float) -> float:
        """Everything that depends on the rows of a step alone.

        Of several ranks each has its own rows, and their experts take those of all.
        """
        dense, model = self.profile.dense, self.model
        total = sum(self._dense_us(name, num_rows) for name in _ONCE)
        for name in dense:
            if name not in _ONCE:
                total += self._count(name) * self._dense_us(name, num_rows)
        nbytes = _ACTIVATION_NBYTES * model.model_dim * num_rows
        reduced = all_reduce_us(self.link, nbytes, self.cut.tp)
        total += (model.num_layers + model.num_ffn_layers) * reduced
        experts_us = self.experts_us(num_rows) if self.cut.dp == 1 else 0.0
        return total + model.num_moe_layers * experts_us

    def experts_us(self, all_rows: float) -> float:
        """One layer of experts, for the rows of all ranks.

        They come to every GPU, are taken by the experts there, and go back summed.
        """
        table, model, gpus = self.profile.experts, self.model, self.cut.expert_gpus
        if table is None or not model.num_experts:
            return 0.0
        woken = local_woken(model.num_experts, model.experts_per_token, all_rows, gpus)
        nbytes = _ACTIVATION_NBYTES * model.model_dim * all_rows
        exchanged = 2.0 * all_gather_us(self.link, nbytes, gpus)
        return exchanged + table.us(all_rows / gpus, woken)

    def head_us(self, num_sequences: float) -> float:
        """Vocabulary head and sampler."""
        return sum(points.at(num_sequences) for points in self.profile.per_sequence.values())

    def _dense_us(self, name: str, num_rows: float) -> float:
        points = self.profile.dense.get(name)
        return points.rounded_up(num_rows) if points else 0.0

    def _count(self, name: str) -> int:
        if name in _FEED_FORWARD:
            return self.model.num_ffn_layers
        return self.model.num_layers * (2 if name in _TWICE else 1)

    def _rows(self) -> Line:
        """Flat up to each measured place and steep right behind it, as tiles are."""
        places = self._places()
        knots = [places[0]]
        for low, high in pairwise(places):
            knots += [low + 1.0, high] if high > low + 1.0 else [high]
        knots.append(2.0 * places[-1])
        return Line(knots=tuple(knots), values_us=tuple(self.rows_us(at) for at in knots))

    def _group(self) -> Line:
        places = self._places()
        knots = sorted({*places, *(at * self.cut.dp for at in places)})
        times = tuple(self.model.num_moe_layers * self.experts_us(at) for at in knots)
        return Line(knots=tuple(knots), values_us=times)

    def _places(self) -> list[float]:
        found: set[float] = set()
        for points in self.profile.dense.values():
            found.update(float(at) for at in points.knots)
        return sorted(found)

    def _decode(self) -> Grid:
        grid, skew = self.profile.attention.decode, self.profile.skew
        spread, layers = self.spread, self.model.num_attention_layers
        rows = []
        for n, heights in zip(grid.x, grid.values_us, strict=True):
            of_length = _beyond(grid.y, heights)
            head_us = self.head_us(n) - self.head_us(1)
            rows.append(
                tuple(
                    head_us
                    + layers
                    * (
                        skew.corrected_us(of_length, int(n), mean, spread)
                        if skew and spread
                        else us
                    )
                    for mean, us in zip(grid.y, heights, strict=True)
                )
            )
        return Grid(x=grid.x, y=grid.y, values_us=tuple(rows))

    def _more_sequences_us(self, num_sequences: float) -> float:
        """Of one sequence more, for chunks, which are few."""
        more = self.head_us(num_sequences) - self.head_us(1)
        return more / (num_sequences - 1) if num_sequences > 1 else 0.0

    def _domain(self) -> Domain:
        attention = self.profile.attention
        return Domain(
            max_rows=self._places()[-1],
            max_visible=attention.prefill.y[-1] + attention.prefill.x[-1],
            max_decodes=attention.decode.x[-1],
            max_context=attention.decode.y[-1],
        )

    def _source(self) -> str:
        text = f"layer timings {self.profile.folder}, {self.model.name}, {self.cut}"
        if self.cut.expert_gpus > 1 or self.cut.tp > 1:
            text += (
                f"; collectives from a link of {self.link.bytes_per_us / 1e3:g} GB/s and "
                f"{self.link.latency_us:g} us, not measured"
            )
        if self.spread is not None and self.profile.skew is not None:
            text += "; decode rows as uneven as the workload's"
        return text


def _check(profile: LayerProfile, model: ModelShape, cut: Cut) -> None:
    if model.num_moe_layers and profile.experts is None:
        raise MissingCell(f"{profile.folder}: {model.name} has experts, and there is no moe.csv")
    if model.num_moe_layers and cut.tp > 1 and not cut.is_expert_parallel:
        raise MissingCell(
            f"{profile.folder}: experts were measured whole; with tp {cut.tp} they need "
            "expert parallelism"
        )
    if model.num_experts % cut.expert_gpus:
        raise MissingCell(
            f"{model.name}: {model.num_experts} experts do not lie evenly over "
            f"{cut.expert_gpus} GPUs"
        )
    if model.num_ffn_layers and "down_proj" not in profile.dense:
        raise MissingCell(f"{profile.folder}: no rows of the layer down_proj")
    if model.latent_dim or model.linear or model.num_window_layers:
        raise MissingCell(
            f"{profile.folder}: {model.name} has layers of latent, linear or windowed attention; "
            "timings are of full attention alone"
        )


def _changed(grid: Grid, change: Callable[[float, float], float]) -> Grid:
    """Each height by a function of itself and its x."""
    return Grid(
        x=grid.x,
        y=grid.y,
        values_us=tuple(
            tuple(change(us, x) for us in heights)
            for x, heights in zip(grid.x, grid.values_us, strict=True)
        ),
    )


def _beyond(knots: tuple[float, ...], values: tuple[float, ...]) -> Callable[[float], float]:
    """Between points along a line, behind the last one along the last line."""
    slope = (values[-1] - values[-2]) / (knots[-1] - knots[-2])

    def at(place: float) -> float:
        if place > knots[-1]:
            return values[-1] + slope * (place - knots[-1])
        return float(np.interp(place, knots, values))

    return at
