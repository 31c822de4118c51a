"""The same function over many arguments, on every core, with results that do not depend on cores.

Compiled simulations release the interpreter lock, so threads suffice.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")
WAVE = 4
"""Candidates that see the same incumbent: fixed, so that any machine prunes the same ones."""


def in_waves(
    arguments: Sequence[Argument],
    run: Callable[[Argument], Result],
    after: Callable[[Argument, Result], None],
    is_wanted: Callable[[Argument], bool] = lambda argument: True,
) -> None:
    """Waves one after another; `after` and `is_wanted` run between them, in order."""
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(max_workers=min(WAVE, cores)) as pool:
        for start in range(0, len(arguments), WAVE):
            wave = [one for one in arguments[start : start + WAVE] if is_wanted(one)]
            # All of a wave first: what `after` learns must not reach those that still run.
            results = list(pool.map(run, wave))
            for argument, result in zip(wave, results, strict=True):
                after(argument, result)
