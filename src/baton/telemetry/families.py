"""Prometheus text: one metric family, and histograms that are counted as values come."""

from bisect import bisect_left
from collections.abc import Iterable

Sample = tuple[dict[str, str], float]
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def write_family(
    lines: list[str], name: str, kind: str, text: str, samples: Iterable[Sample]
) -> None:
    """Append a family in the text exposition format."""
    lines.append(f"# HELP {name} {text}")
    lines.append(f"# TYPE {name} {kind}")
    lines += (f"{name}{_labels(labels)} {value}" for labels, value in samples)


def _labels(labels: dict[str, str]) -> str:
    inner = ",".join(f'{key}="{one.translate(_ESCAPES)}"' for key, one in labels.items())
    return f"{{{inner}}}" if inner else ""


class TextHistogram:
    """Cumulative buckets of one label set."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def write(self, lines: list[str], name: str, labels: dict[str, str]) -> None:
        """Append its samples; the head of the family is the caller's."""
        total = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            lines.append(f"{name}_bucket{_labels({**labels, 'le': str(bound)})} {total}")
        lines.append(f"{name}_sum{_labels(labels)} {self._sum}")
        lines.append(f"{name}_count{_labels(labels)} {total}")
