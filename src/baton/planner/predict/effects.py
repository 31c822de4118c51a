"""Which efficiencies and host times a deployment has, as products of a few fitted effects.

Every quantity starts from a round number and is multiplied by the effects of the labels of a
deployment: its backend and mode, its engine's release, its model, its precision, its sharding.
An effect that was not fitted is 1, so that a deployment unlike any other keeps the physics.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from baton.hardware.operators.columns import Floats
from baton.planner.predict.case import Case
from baton.planner.predict.rows import Row

Labels = dict[str, str]


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment has, where it starts, and how far each kind of label may move its log."""

    start: float
    spread: dict[str, float]
    is_power: bool = False
    """An exponent: effects add up and start from `start` itself."""


QUANTITIES = {
    "decode": Quantity(
        start=1.0,
        spread={"phase": 0.3, "release": 0.2, "model": 0.15, "build": 0.3, "kind": 0.15}
        | {"platform": 0.1},
    ),
    "prefill": Quantity(
        start=1.0,
        spread={"phase": 0.4, "release": 0.2, "model": 0.15, "build": 0.3, "kind": 0.15}
        | {"platform": 0.15},
    ),
    "step_ms": Quantity(start=1.0, spread={"phase": 1.5, "release": 0.3}),
    "request_ms": Quantity(
        start=30.0, spread={"phase": 1.5, "release": 0.8, "build": 0.6, "platform": 0.5}
    ),
    "layer_ms": Quantity(start=0.2, spread={"phase": 1.0, "release": 0.4}),
    "cold_ms": Quantity(start=100.0, spread={"phase": 2.0, "build": 1.0}),
    "burst": Quantity(
        start=0.1, spread={"phase": 1.0, "release": 0.8, "build": 0.6, "platform": 0.8}
    ),
    "queue": Quantity(start=0.5, spread={"phase": 1.0, "release": 0.4}),
    "starve": Quantity(start=0.9, spread={"phase": 0.5}),
    "stall": Quantity(start=0.5, spread={"phase": 0.3}, is_power=True),
    "batch": Quantity(start=0.0, spread={"phase": 0.1, "kind": 0.05, "build": 0.05}, is_power=True),
    "length": Quantity(start=0.0, spread={"phase": 0.2, "kind": 0.1, "build": 0.1}, is_power=True),
}
"""Factors of the operator times of a decode step and of a prompt; host time of a step, of a
request, of a layer of a prompt's step; what the start of a run costs, over its requests in flight;
the share of the first burst that the mean of a run keeps; how much of the queue found on arrival
is waited for; the same for a lack of K/V room; how far prompts on one attention rank hold up the
others; and powers of the batch and of the prompt that the tables miss."""
OPERATOR_SPREAD = 0.25
"""Of each operator's own factor."""


def labels_of(row: Row, case: Case) -> Labels:
    """What is said of a deployment beside its size."""
    mode = "split" if row.text("mode") == "disagg" else "colocated"
    if case.decode is not None and not case.decode.is_given:
        mode = "split, workers unstated"
    decode = (case.decode or case.prefill).sharding
    spread = "dp" if decode.dp > 1 else "ep" if decode.ep > 1 else "tp"
    served = mode.partition(",")[0]
    release = f"{case.backend} {row.text('backend_version') or 'unstated'}"
    model = row.text("model_path").rsplit("/", 1)[-1]
    return {
        "phase": f"{case.backend} {mode}",
        "release": f"{release} {served}",
        "model": case.model.name,
        "build": f"{release} {served} {model}",
        "platform": f"{case.backend} {mode} {case.system.name}",
        "kind": f"{case.backend} {mode} {case.quantisation.gemm} {spread}",
    }


def effect_name(quantity: str, kind: str, label: str) -> str:
    """How coefficients are named."""
    return f"{quantity}/{kind}/{label}"


def quantities_of(labels: Sequence[Labels], coefficients: Mapping[str, float]) -> dict[str, Floats]:
    """Every quantity for every deployment; coefficients are logarithms, 0 where not fitted."""
    found = {}
    for name, quantity in QUANTITIES.items():
        total = np.zeros(len(labels))
        for kind in quantity.spread:
            effects = [coefficients.get(effect_name(name, kind, one[kind]), 0.0) for one in labels]
            total += np.array(effects)
        found[name] = (
            quantity.start + total if quantity.is_power else quantity.start * np.exp(total)
        )
    return found
