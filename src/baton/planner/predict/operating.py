"""Operator times of a case where it operates: its decode batch, its prompts, bursts of prompts."""

from pathlib import Path

import numpy as np

from baton.hardware.operators.columns import Floats
from baton.hardware.operators.folder import nearest_tables
from baton.hardware.operators.sharding import Sharding
from baton.hardware.operators.terms import (
    BATCH_KNOTS,
    CHUNK_KNOTS,
    CONTEXT_KNOTS,
    ROW_KNOTS,
    ROW_TERMS,
    VISIBLE_KNOTS,
    OperatorTerms,
    interpolate,
    interpolate_grid,
    operator_terms,
)
from baton.planner.predict.case import Case

TERMS = (*ROW_TERMS, "head", "context", "generation", "layers")
"""What the time of a step is a weighted sum of; `layers` counts layers, in place of a time."""
CHUNK_TOKENS = 8192
"""Prompt tokens of one step: the default of the three backends, or near it."""


class TermsCache:
    """Lowered models, each once."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._known: dict[tuple[object, ...], OperatorTerms] = {}

    def terms(self, case: Case, sharding: Sharding) -> OperatorTerms:
        """Of one worker of a case."""
        key = (case.model, case.system.name, sharding, case.quantisation)
        found = self._known.get(key)
        if found is None:
            folder = nearest_tables(self._data, case.system)
            found = operator_terms(folder, case.system, case.model, sharding, case.quantisation)
            self._known[key] = found
        return found


def step_terms(
    terms: OperatorTerms,
    chunk: float,
    visible: float,
    num_chunks: float,
    batch: float,
    context: float,
) -> Floats:
    """One step of one rank, in `TERMS` order: equal chunks and a decode batch."""
    rows = chunk * num_chunks + batch
    values = [float(interpolate(ROW_KNOTS, terms.rows[name], rows)) for name in ROW_TERMS]
    values.append(float(interpolate(ROW_KNOTS, terms.head, num_chunks + batch)))
    one = interpolate_grid(CHUNK_KNOTS, VISIBLE_KNOTS, terms.context, chunk, visible)
    values.append(num_chunks * float(one) if num_chunks else 0.0)
    grid = interpolate_grid(BATCH_KNOTS, CONTEXT_KNOTS, terms.generation, batch, context)
    values.append(float(grid) if batch else 0.0)
    values.append(float(terms.num_layers))
    return np.array(values)


def prompt_terms(terms: OperatorTerms, num_prompt: float, batch: float, context: float) -> Floats:
    """All steps of one prompt, cut into chunks, over a decode batch that takes part in each."""
    total, done = np.zeros(len(TERMS)), 0.0
    while done < num_prompt:
        chunk = min(CHUNK_TOKENS, num_prompt - done)
        total += step_terms(terms, chunk, done, 1.0, batch, context)
        done += chunk
    return total
