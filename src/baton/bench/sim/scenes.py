"""What is simulated: the same requests on the same shape of deployment for us and for Dynamo."""

from collections.abc import Callable

import msgspec

from baton.core.ids import Role, Schedule
from baton.errors import ConfigError
from baton.hardware.curves import Line, StepCurves, StepSide
from baton.sim.fast.deployment import Deployment, Handoff, Topology, WorkerGroup

TOKEN_NBYTES = 131_072
LINK_BYTES_PER_US = 25_000.0
NUM_LAYERS = 32
_POOL_BLOCKS, _BLOCK_SIZE = 16_384, 512
"""Dynamo's default pool, in blocks of the trace."""
_ROWS = tuple(float(n) for n in range(0, 8193, 256))

DYNAMO_STEPS = StepCurves(
    sides=(
        StepSide(
            prefill_us=16_501.42,
            prefill_rows=Line(
                knots=_ROWS, values_us=tuple(15.18344 * n + 4.209989e-4 * n * n for n in _ROWS)
            ),
            decode_us=5_740.0,
            decode_token_us=54_010.0 / (_POOL_BLOCKS * _BLOCK_SIZE),
        ),
    ),
    source="the engine that Dynamo's replay has built in, read from its reports: prompts of 16 to "
    "32,768 tokens alone (a chunk costs what its own rows do, whatever they see), and one decode "
    "row by the share of the pool that is in use",
)
"""Both simulate the same steps, so that both have the same batches and as many steps."""

DISTSERVE_PREFILL = StepCurves(
    sides=(
        StepSide(
            prefill_us=14_740.0,
            prefill_rows=Line(knots=(0.0, 1000.0), values_us=(0.0, 68_580.0)),
            pair_us=2 * 2.45e-3,
        ),
    ),
    source="DistServe's fit of OPT-13B on A100-80G, TP 2",
)
DISTSERVE_DECODE = StepCurves(
    sides=(StepSide(decode_us=19_930.0, decode_token_us=0.627, decode_row_us=38.51),),
    source="DistServe's fit of OPT-13B on A100-80G, TP 1",
)
SPLITWISE_STEPS = StepCurves(
    sides=(
        StepSide(
            prefill_us=40_000.0,
            prefill_rows=Line(knots=(0.0, 1000.0), values_us=(0.0, 80_000.0)),
            decode_us=35_000.0,
            decode_row_us=60.0,
        ),
    ),
    source="near Splitwise's table of Llama-2-70B on H100: about 130 ms a prompt, 35 ms a token",
)


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A trace, a rate or a limit where it has one, and who serves it."""

    name: str
    what: str
    trace: str
    """A name of `traces.MAKERS`."""
    num_prefill: int = 0
    num_decode: int = 0
    num_mixed: int = 0
    is_kv_aware: bool = False
    make: Callable[["Scene"], Deployment] | None = None
    """None: Dynamo's engine on each worker."""

    @property
    def deployment(self) -> Deployment:
        """As the fast host takes it."""
        return (self.make or _dynamo_like)(self)


def _dynamo_like(scene: Scene) -> Deployment:
    return _deployment(scene, DYNAMO_STEPS, DYNAMO_STEPS, _POOL_BLOCKS * _BLOCK_SIZE)


def _distserve_like(scene: Scene) -> Deployment:
    return _deployment(scene, DISTSERVE_PREFILL, DISTSERVE_DECODE, 200_000)


def _splitwise_like(scene: Scene) -> Deployment:
    return _deployment(scene, SPLITWISE_STEPS, SPLITWISE_STEPS, 1_000_000)


def _deployment(
    scene: Scene, prefill: StepCurves, decode: StepCurves, kv_tokens: int
) -> Deployment:
    roles = (
        (Role.PREFILL, scene.num_prefill, prefill),
        (Role.DECODE, scene.num_decode, decode),
        (Role.MIXED, scene.num_mixed, decode),
    )
    groups = tuple(
        WorkerGroup(
            name=str(role),
            role=role,
            num_workers=count,
            curves=curves,
            kv_tokens=kv_tokens,
            block_size=16,
            max_batch_tokens=8192,
        )
        for role, count, curves in roles
        if count
    )
    return Deployment(
        groups=groups,
        handoff=Handoff(token_nbytes=TOKEN_NBYTES, num_layers=NUM_LAYERS, schedule=Schedule.REQUEST)
        if scene.num_prefill
        else None,
        topology=Topology(
            egress_bytes_per_us=LINK_BYTES_PER_US,
            ingress_bytes_per_us=LINK_BYTES_PER_US,
            latency_us=0.0,
        ),
        route="local_cache_aware" if scene.is_kv_aware else "round_robin",
    )


DUELS = (
    Scene(
        name="w1",
        what="W1, 16 requests/s, 4P+4D, round robin",
        trace="w1-r16",
        num_prefill=4,
        num_decode=4,
    ),
    Scene(name="one", what="W1, 4 requests/s, one mixed worker", trace="w1-r4", num_mixed=1),
    Scene(
        name="constant",
        what="100,000 of 1024/128, 64 requests/s, 4P+4D, round robin",
        trace="constant",
        num_prefill=4,
        num_decode=4,
    ),
    Scene(
        name="w6",
        what="W6, 4P+4D, by K/V",
        trace="w6",
        num_prefill=4,
        num_decode=4,
        is_kv_aware=True,
    ),
    Scene(name="w6-mixed", what="W6, 8 mixed, by K/V", trace="w6", num_mixed=8, is_kv_aware=True),
)
"""Beside Dynamo, in one run."""

ALONE = (
    Scene(
        name="simdistserve-w3",
        what="W3, 2 requests/s, first 1,000, OPT-13B, 1P+1D",
        trace="w3-r2-1000",
        num_prefill=1,
        num_decode=1,
        make=_distserve_like,
    ),
    Scene(
        name="simdistserve-w1",
        what="W1, 2 requests/s, OPT-13B, 1P+1D",
        trace="w1-r2",
        num_prefill=1,
        num_decode=1,
        make=_distserve_like,
    ),
    Scene(
        name="splitwise-r80-1000",
        what="W1, 80 requests/s, first 1,000, 25P+26D",
        trace="w1-r80-1000",
        num_prefill=25,
        num_decode=26,
        make=_splitwise_like,
    ),
    Scene(
        name="splitwise-r80",
        what="W1, 80 requests/s, 25P+26D",
        trace="w1-r80",
        num_prefill=25,
        num_decode=26,
        make=_splitwise_like,
    ),
    Scene(
        name="splitwise-r16",
        what="W1, 16 requests/s, first 1,000, 4P+4D",
        trace="w1-r16-1000",
        num_prefill=4,
        num_decode=4,
        make=_splitwise_like,
    ),
)
"""Workloads of peers that no registry carries."""

MILLION = Scene(
    name="million",
    what="1,000,000 of 1024/128, 500 requests/s, 32P+32D, round robin",
    trace="million",
    num_prefill=32,
    num_decode=32,
)


def find_scene(name: str) -> Scene:
    """Raises ConfigError."""
    for scene in (*DUELS, *ALONE, MILLION):
        if scene.name == name:
            return scene
    known = ", ".join(scene.name for scene in (*DUELS, *ALONE, MILLION))
    raise ConfigError(f"scene {name!r}: use one of {known}")
