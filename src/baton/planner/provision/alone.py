"""How long each request takes alone on one machine: what slowdowns are measured against."""

import numpy as np
from numpy.typing import NDArray

from baton.compiled import compiled
from baton.hardware.curves import StepCurves
from baton.hardware.evaluate import Packed, step_us

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def _prompt_us(curves: Packed, lengths: Ints) -> Floats:
    """The whole prompt in one step, for each length."""
    found = np.empty(len(lengths), np.float64)
    rows, visible = np.zeros(1, np.float64), np.zeros(1, np.float64)
    for i in range(len(lengths)):
        rows[0] = lengths[i]
        found[i] = step_us(curves, rows, visible, 1, 0, 0.0)
    return found


@compiled
def _decode_sums_us(curves: Packed, longest: int) -> Floats:
    """Entry n is the time of decode steps that see 1, 2, ... n tokens, all together."""
    sums = np.zeros(longest + 1, np.float64)
    none = np.zeros(1, np.float64)
    for num in range(1, longest + 1):
        sums[num] = sums[num - 1] + step_us(curves, none, none, 0, 1, float(num))
    return sums


class Alone:
    """Times of single requests on an idle machine with these curves."""

    def __init__(self, curves: StepCurves) -> None:
        self._packed = curves.packed()
        self._stages = curves.pipeline
        self._sums = np.zeros(1, np.float64)

    def ttft_us(self, num_prompt: Ints) -> Floats:
        """Until the first token."""
        found: Floats = _prompt_us(self._packed, num_prompt) * self._stages
        return found

    def decode_us(self, num_prompt: Ints, num_output: Ints) -> Floats:
        """From the first token to the last: each step sees what is there already, itself too."""
        last = num_prompt + num_output - 1
        sums = self._sums
        if len(last) and last.max() >= len(sums):
            sums = self._sums = _decode_sums_us(self._packed, int(last.max()) + 1) * self._stages
        found: Floats = sums[last] - sums[num_prompt]
        return found

    def step_us(self, num_prompt: Ints) -> Floats:
        """The first decode step."""
        ones = np.ones_like(num_prompt)
        return self.decode_us(num_prompt, ones + ones)
