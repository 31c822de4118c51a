"""Linear layers whose rows do not depend on how many rows share the call.

On a CPU in float32 the weights are packed once for oneDNN: unlike the library behind `F.linear` it
computes a row the same way for every number of rows above a small minimum, and it does not pack
the weight again at each call. The packing operators are private to torch, though Inductor emits
them; where they are missing, `F.linear` on padded rows is used, which is invariant for batches of
decode rows only.
"""

import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

FALLBACK_MIN_ROWS = 16
"""Least row count for which plain `F.linear` treats decode rows alike."""
_CANDIDATE_ROWS = (2, 3, 4, 5, 6)
"""Least row counts worth trying; one row takes a different code path and other bits."""
_TIMED_NBYTES = 192 << 20
_PROBE_ROWS = (7, 8, 15, 16, 17, 31, 33, 48, 64, 100, 128, 200, 256, 300, 600)


def packing_available() -> bool:
    """True when torch has the operators that pack a weight and multiply by it."""
    names = ("_reorder_linear_weight", "_linear_pointwise")
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and all(hasattr(torch.ops.mkldnn, name) for name in names)


class Linear(nn.Module):
    """`x @ weight.T + bias` for rows `[n, in]` or `[..., in]`, packed when that is possible.

    The given weight is not kept after packing. `min_rows` is the least number of rows that is
    multiplied; fewer are padded with zero rows.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, min_rows: int, packed: bool) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.min_rows = min_rows
        self.packed = packed
        # Models ask a linear layer for its weight's dtype; a meta tensor answers without memory.
        self.weight = torch.empty(weight.shape, dtype=weight.dtype, device="meta")
        self.bias = None if bias is None else bias.detach().clone()
        self._data = _pack(weight.detach()) if packed else weight.detach()

    def forward(self, x: Tensor) -> Tensor:
        """Multiply; the leading shape of `x` is kept."""
        if x.dim() != 2:
            flat = self.forward(x.reshape(-1, self.in_features))
            return flat.view(*x.shape[:-1], self.out_features)
        rows = x.shape[0]
        if rows < self.min_rows:
            return self.multiply(functional.pad(x, (0, 0, 0, self.min_rows - rows)))[:rows]
        return self.multiply(x)

    def multiply(self, x: Tensor) -> Tensor:
        """Multiply `x` [n >= min_rows, in] without a check."""
        if self.packed:
            result: Tensor = torch.ops.mkldnn._linear_pointwise(
                x, self._data, self.bias, "none", [], ""
            )
            return result
        return functional.linear(x, self._data, self.bias)


def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
    return packed


def tune_min_rows(linears: Sequence[Linear]) -> int:
    """Set and return the least row count that runs fastest here, timed over real weights.

    Two rows can cost more than five: the library's kernels differ in how they block rows.
    """
    timed, nbytes = [], 0
    for linear in linears:
        timed.append(linear)
        nbytes += linear.out_features * linear.in_features * linear.weight.element_size()
        # Enough to come from memory, as in a step, rather than from a cache.
        if nbytes > _TIMED_NBYTES:
            break
    # One thread's own time ignores its neighbours; of several threads only the wall knows.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    best, best_s = _CANDIDATE_ROWS[0], float("inf")
    for rows in _CANDIDATE_ROWS:
        inputs = {linear.in_features: torch.ones(rows, linear.in_features) for linear in timed}
        elapsed = []
        for _ in range(3):
            start = clock()
            for linear in timed:
                linear.multiply(inputs[linear.in_features])
            elapsed.append(clock() - start)
        # A larger minimum must win clearly: it also makes small batches compute idle rows.
        if min(elapsed) < 0.95 * best_s:
            best, best_s = rows, min(elapsed)
    for linear in linears:
        linear.min_rows = best
    return best


def settle_min_rows(linears: Sequence[Linear]) -> tuple[int, str]:
    """Keep the tuned minimum if rows agree under it, else take the least one under which they do.

    Returns the minimum and, when no candidate will do, the first shape whose rows differ.
    """
    tuned = linears[0].min_rows if linears else 1
    reason = ""
    for rows in (tuned, *_CANDIDATE_ROWS, FALLBACK_MIN_ROWS):
        for linear in linears:
            linear.min_rows = rows
        reason = rows_differ(linears)
        if not reason:
            return rows, ""
    return FALLBACK_MIN_ROWS, reason


def rows_differ(linears: Sequence[Linear]) -> str:
    """Name the first shape whose rows change with the number of rows, or return ""."""
    seen: set[tuple[int, int]] = set()
    generator = torch.Generator().manual_seed(7)
    for linear in linears:
        shape = (linear.out_features, linear.in_features)
        if shape in seen or linear.out_features > 16384:
            continue
        seen.add(shape)
        x = torch.randn(max(_PROBE_ROWS), linear.in_features, generator=generator)
        whole = linear(x)
        counts = (1, *range(linear.min_rows, 7), *_PROBE_ROWS)
        for rows in counts:
            if not torch.equal(linear(x[-rows:].contiguous()), whole[-rows:]):
                return f"a linear layer {shape[1]} -> {shape[0]} changes with {rows} rows"
    return ""
