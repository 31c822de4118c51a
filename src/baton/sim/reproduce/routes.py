"""Prefill scheduling of Mooncake: four ways to choose (R16), the threshold (R17), links (R22).

Eight prefill nodes compute and one node decodes. Answers are cut to the one token that prefill
draws itself, so the decode node only takes the K/V in: it is large, and its time is nobody's.
"""

from functools import lru_cache

import msgspec

from baton.sim.reproduce.check import Check
from baton.sim.reproduce.data import TICK_MS, Data, run
from baton.sim.reproduce.reuse import CACHE_3M, ENDLESS
from baton.sim.simulate.hardware import machine
from baton.sim.simulate.report import Report

CLUSTER = ("cluster.prefill=8", "cluster.decode=1", "cache.milestone=prefill")
"""Decode keeps no history: the published caches are those of the prefill nodes."""
POLICIES = ("random", "load_balance", "local_cache_aware", "global_cache_aware")
MFUS = (0.45, 0.5, 0.55)
"""The middle and both ends of what is plausible for that node."""
SWEEP_MFU = 0.45
"""Where queues are long, so that a threshold has something to decide."""
THRESHOLDS = (1.0, 2.0, 4.0, 8.0, 1e9)
LINKS_GBITS = (24, 50, 75, 100, 150, 200, 400)
BITS_PER_BYTE = 8
LAYER_GROUP = 20
"""A handoff moves in four parts: at 100 GB/s the last one shows 10 ms, and half the events go."""
KNEE = 1.25
"""A link is fast enough when the mean TTFT is within this factor of that of the fastest one."""


@lru_cache(maxsize=64)
def routed(
    data: Data,
    trace: str,
    policy: str,
    *,
    mfu: float,
    link_gbytes_per_s: float = 100.0,
    threshold: float = 2.0,
) -> Report:
    """A whole trace through eight prefill nodes with 3M tokens of cache each."""
    return run(
        data.options(trace, tick_ms=TICK_MS[trace]),
        msgspec.structs.replace(
            machine("a100x8-llama70b", mfu=mfu, link_gbytes_per_s=link_gbytes_per_s),
            layer_group=LAYER_GROUP,
        ),
        [*CLUSTER, f"router.policy={policy}", f"router.balancing_threshold={threshold:.1f}"],
        num_blocks=CACHE_3M,
        num_decode_blocks=ENDLESS,
    )


def mean_ttft_s(figures: Report) -> float:
    """Mean over the requests that completed, which all have to."""
    mean_ms = figures.latency["mean_ttft_ms"]
    assert mean_ms is not None and figures.num_completed == figures.num_requests
    return mean_ms / 1000


def policy_checks(data: Data) -> list[Check]:
    """Order and ratios of the four means, at each efficiency in the range that is plausible."""
    checks = []
    published = dict(zip(POLICIES, (19.65, 5.27, 3.58, 3.07), strict=True))
    for mfu in MFUS:
        means = {
            policy: mean_ttft_s(routed(data, "conversation", policy, mfu=mfu))
            for policy in POLICIES
        }
        checks += [
            Check(
                target="r16",
                what=f"mean TTFT, {policy}, MFU {mfu:g}",
                published=f"{published[policy]} s",
                measured=seconds,
                unit="s",
            )
            for policy, seconds in means.items()
        ]
        random, load, local, everywhere = (means[policy] for policy in POLICIES)
        at = f"MFU {mfu:g}"
        is_ordered = random > load > local > everywhere
        checks += [
            Check(
                target="r16", what=f"order random > load > local > global, {at}",
                published="strict", measured=float(is_ordered), low=1.0,
            ),
            Check(
                target="r16", what=f"global / local, {at}",
                published="0.86", measured=everywhere / local, low=0.80, high=0.92,
            ),
            Check(
                target="r16", what=f"local / load, {at}",
                published="0.68", measured=local / load, low=0.53, high=0.83,
            ),
            Check(
                target="r16", what=f"random / load, {at}",
                published="3.7", measured=random / load, low=3.0,
            ),
        ]  # fmt: skip
    return checks


def threshold_checks(data: Data) -> list[Check]:
    """Any finite threshold beats never to copy."""
    means = {
        threshold: mean_ttft_s(
            routed(data, "conversation", "conductor", mfu=SWEEP_MFU, threshold=threshold)
        )
        for threshold in THRESHOLDS
    }
    never = means[THRESHOLDS[-1]]
    checks = [
        Check(
            target="r17",
            what=f"mean TTFT, threshold {'never' if threshold == THRESHOLDS[-1] else threshold}",
            published="-",
            measured=seconds,
            unit="s",
        )
        for threshold, seconds in means.items()
    ]
    return [
        *checks,
        Check(
            target="r17",
            what="threshold 2 / never",
            published="< 1",
            measured=means[2.0] / never,
            high=0.9,
        ),
    ]


def link_checks(data: Data) -> list[Check]:
    """Where a slower link begins to cost: mean TTFT with copies, beside that without any."""
    checks, means = [], {}
    for gbits in LINKS_GBITS:
        link = gbits / BITS_PER_BYTE
        for policy in ("global_cache_aware", "local_cache_aware"):
            found = routed(data, "synthetic", policy, mfu=0.5, link_gbytes_per_s=link)
            means[policy, gbits] = mean_ttft_s(found)
            checks.append(
                Check(
                    target="r22",
                    what=f"mean TTFT, {policy}, {gbits} Gb/s",
                    published="-",
                    measured=means[policy, gbits],
                    unit="s",
                )
            )
    best = means["global_cache_aware", LINKS_GBITS[-1]]
    knee = min(g for g in LINKS_GBITS if means["global_cache_aware", g] <= KNEE * best)
    return [
        *checks,
        Check(
            target="r22",
            what=f"slowest link within {KNEE:g} of the fastest",
            published="near 100 Gb/s",
            measured=float(knee),
            low=50.0,
            high=150.0,
            unit="Gb/s",
        ),
    ]
