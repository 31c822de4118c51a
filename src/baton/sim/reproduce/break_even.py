"""The link from which on fetching a prefix is faster than computing it (R21)."""

from baton.sim.reproduce.check import Check
from baton.sim.simulate.hardware import MACHINES

PREFIX = 8192
PUBLISHED = {"a100x8-llama70b": 5.86, "h800x8-llama70b": 18.57}


def break_even_checks() -> list[Check]:
    """LLaMA3-70B, 8192 tokens, at the peak rate of the whole node."""
    return [
        Check(
            target="r21",
            what=f"break-even link, {name}",
            published=f"{published} GB/s",
            measured=MACHINES[name].break_even_gbytes_per_s(PREFIX),
            low=published * 0.99,
            high=published * 1.01,
            unit="GB/s",
        )
        for name, published in PUBLISHED.items()
    ]
