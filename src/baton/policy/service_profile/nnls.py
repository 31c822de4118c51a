"""Non-negative least squares: a cost cannot be negative, whatever the noise says."""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def solve_non_negative(matrix: Vector, target: Vector) -> Vector:
    """The `x >= 0` that minimises `|matrix @ x - target|`, by the active set of Lawson and Hanson.

    Columns are scaled to length 1 first, so that units do not decide what counts as small.
    """
    lengths = np.linalg.norm(matrix, axis=0)
    scale = np.where(lengths > 0, lengths, 1.0)
    scaled = matrix / scale
    solution = np.zeros(matrix.shape[1])
    free = np.zeros(matrix.shape[1], bool)
    tolerance = 1e-10 * max(1.0, float(np.linalg.norm(target)))
    for _ in range(10 * matrix.shape[1]):
        gradient = scaled.T @ (target - scaled @ solution)
        gradient[free | (lengths == 0)] = 0.0
        best = int(np.argmax(gradient))
        if gradient[best] <= tolerance:
            break
        free[best] = True
        solution = _settle(scaled, target, solution, free)
    result: Vector = solution / scale
    return result


def _settle(matrix: Vector, target: Vector, start: Vector, free: NDArray[np.bool_]) -> Vector:
    """Least squares over the free columns; those that would turn negative are fixed at zero."""
    current = start
    while free.any():
        wanted = np.zeros_like(current)
        wanted[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
        negative = free & (wanted <= 0)
        if not negative.any():
            return wanted
        # As far towards the unbounded solution as every part stays non-negative.
        step = float(np.min(current[negative] / (current[negative] - wanted[negative])))
        current = current + step * (wanted - current)
        free &= ~(negative & (current <= 1e-12))
        current[~free] = 0.0
    return current
