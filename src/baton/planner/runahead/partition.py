"""A prompt's rows over ordered processes: the work of each, and the K/V rows between them.

Process p owns n_p rows after C_p earlier ones. A dense kernel computes its diagonal square whole
and masks it; a triangular one computes the valid pairs only (specification 0x0CA).
"""

from collections.abc import Sequence

import msgspec

from baton.errors import ConfigError


class Partition(msgspec.Struct, frozen=True):
    """Rows of each process, from the start of the prompt on."""

    rows: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.rows or min(self.rows) < 1:
            raise ConfigError(f"partition {list(self.rows)}: every process needs at least 1 row")

    @property
    def num_rows(self) -> int:
        """The whole prompt."""
        return sum(self.rows)

    @property
    def starts(self) -> tuple[int, ...]:
        """C_p: rows before each process."""
        return tuple(sum(self.rows[:at]) for at in range(len(self.rows)))

    @property
    def dense_pairs(self) -> tuple[int, ...]:
        """Query-key pairs of each process, its diagonal block computed whole."""
        return tuple(n * before + n * n for n, before in zip(self.rows, self.starts, strict=True))

    @property
    def triangular_pairs(self) -> tuple[int, ...]:
        """The same of a kernel that leaves out what the mask would."""
        return tuple(
            n * before + n * (n + 1) // 2 for n, before in zip(self.rows, self.starts, strict=True)
        )

    @property
    def handed_rows(self) -> int:
        """Token rows over all links, of one layer: each hands on everything before its receiver."""
        return sum(self.starts)

    @property
    def owner(self) -> int:
        """The one process that holds the whole prompt's K/V in the end, and may publish it."""
        return len(self.rows) - 1

    def nbytes(self, num_layers: int, row_nbytes: int) -> int:
        """Logical K/V bytes over all links; `row_nbytes` is one token of one layer."""
        return self.handed_rows * num_layers * row_nbytes


def equal_partition(num_rows: int, num_processes: int) -> Partition:
    """KVR-E: as equal as whole rows allow, the longer shares in front."""
    _check(num_rows, num_processes)
    share, rest = divmod(num_rows, num_processes)
    return Partition(tuple(share + (at < rest) for at in range(num_processes)))


def scaled_partition(shares: Sequence[float], num_rows: int) -> Partition:
    """Rows in proportion to shares, each boundary rounded and every process left at least a row."""
    _check(num_rows, len(shares))
    if min(shares) <= 0:
        raise ConfigError(f"shares {list(shares)}: each must be above 0")
    total, so_far, last = sum(shares), 0.0, 0
    rows = []
    for at, share in enumerate(shares):
        so_far += share
        behind = len(shares) - 1 - at
        end = num_rows if not behind else round(num_rows * so_far / total)
        end = min(max(end, last + 1), num_rows - behind)
        rows.append(end - last)
        last = end
    return Partition(tuple(rows))


def gathered_rows(num_rows: int, num_processes: int) -> int:
    """Token rows that an all-gather moves in one layer: every process gets what it lacks."""
    _check(num_rows, num_processes)
    return (num_processes - 1) * num_rows


def least_dense_pairs(num_rows: int, num_processes: int) -> float:
    """C^2 / 2 (1/p + 1/p^2): no partition has a smaller largest share of dense work."""
    _check(num_rows, num_processes)
    return num_rows**2 / 2 * (1 / num_processes + 1 / num_processes**2)


def _check(num_rows: int, num_processes: int) -> None:
    if num_processes < 1:
        raise ConfigError(f"num_processes = {num_processes}: at least 1")
    if num_rows < num_processes:
        raise ConfigError(
            f"{num_rows} prompt rows over {num_processes} processes: give each at least 1 row"
        )
