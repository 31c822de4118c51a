"""One cell of the surface: what is changed about the workload and about the links."""

import msgspec
import numpy as np

from baton.errors import ConfigError
from baton.planner.goodput.draws import Arrivals, Draws, Ints, Lengths, draw
from baton.sim.fast.deployment import Deployment
from baton.sim.fast.workload import FastWorkload

US_PER_S = 1e6
TOKENS_PER_HASH = 16
"""Of the shared prefix that a hit ratio stands for."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A workload and a topology; what is not set stays as it is."""

    rate_per_s: float
    prompt_scale: float = 1.0
    output_scale: float = 1.0
    cv: float = 1.0
    """Coefficient of variation of the gaps between arrivals: 1 is Poisson, more is burstier."""
    hit_ratio: float = 0.0
    """Share of each prompt that all requests have in common, so that it is found in a cache."""
    link_bytes_per_s: float | None = None
    """Of every link that K/V may take; None: as deployed."""

    def __post_init__(self) -> None:
        for name in ("rate_per_s", "prompt_scale", "output_scale", "cv"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"margin cell: {name} = {getattr(self, name)}: above 0")
        if not 0 <= self.hit_ratio < 1:
            raise ConfigError(f"margin cell: hit_ratio = {self.hit_ratio}: from 0 to below 1")
        if self.link_bytes_per_s is not None and not self.link_bytes_per_s > 0:
            raise ConfigError(
                f"margin cell: link_bytes_per_s = {self.link_bytes_per_s}: above 0, or None"
            )

    def workload(self, trace: FastWorkload, num: int, seed: int) -> FastWorkload:
        """So many requests of the cell, at its rate."""
        keeps = not self.hit_ratio and bool(len(trace.hash_ids)) and self.prompt_scale == 1.0
        drawn = draw(
            trace,
            num,
            seed,
            Draws(
                arrivals=Arrivals.POISSON if self.cv == 1.0 else Arrivals.GAMMA,
                cv=self.cv,
                lengths=Lengths.TRACE if keeps else Lengths.PAIRS,
            ),
        ).at_rate(self.rate_per_s)
        prompts = _scaled(drawn.num_prompt, self.prompt_scale)
        offsets, ids, size = drawn.hash_offsets, drawn.hash_ids, drawn.tokens_per_hash
        if not keeps:
            shared = (prompts * self.hit_ratio).astype(np.int64) // TOKENS_PER_HASH
            offsets = np.concatenate([[0], np.cumsum(shared)]).astype(np.int64)
            ids = np.arange(offsets[-1], dtype=np.int64) - np.repeat(offsets[:-1], shared)
            size = TOKENS_PER_HASH if len(ids) else 0
        return FastWorkload(
            arrival_us=drawn.arrival_us,
            num_prompt=prompts,
            num_output=_scaled(drawn.num_output, self.output_scale),
            hash_offsets=offsets,
            hash_ids=ids,
            tokens_per_hash=size,
            source=f"{drawn.source}, {self}",
        )

    def linked(self, deployment: Deployment) -> Deployment:
        """With the links of the cell."""
        if self.link_bytes_per_s is None:
            return deployment
        each = self.link_bytes_per_s / US_PER_S
        topology = msgspec.structs.replace(
            deployment.topology,
            inner_bytes_per_us=each,
            egress_bytes_per_us=each,
            ingress_bytes_per_us=each,
        )
        return msgspec.structs.replace(deployment, topology=topology)

    def __str__(self) -> str:
        link = f", links {self.link_bytes_per_s / 1e9:.3g} GB/s" if self.link_bytes_per_s else ""
        return (
            f"{self.rate_per_s:.4g}/s, prompts x {self.prompt_scale:g}, outputs x "
            f"{self.output_scale:g}, CV {self.cv:g}, hits {self.hit_ratio:g}{link}"
        )


def _scaled(lengths: Ints, factor: float) -> Ints:
    scaled: Ints = np.maximum(1, np.rint(lengths * factor)).astype(np.int64)
    return scaled
