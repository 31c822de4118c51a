"""Read a trace file of any known format into a workload."""

import hashlib
import sys
from collections.abc import Callable, Iterable
from itertools import groupby, islice, pairwise
from pathlib import Path

import msgspec
import numpy as np

from baton.errors import ConfigError
from baton.workload.loaders import (
    azure,
    burstgpt,
    lengths,
    mooncake,
    sharegpt,
    splitwise,
    turns,
)
from baton.workload.loaders.rows import Format, Options, Tally
from baton.workload.loaders.text import first_line
from baton.workload.request import Workload, WorkloadRequest

FORMATS: dict[str, Format] = {
    module.FORMAT.name: module.FORMAT
    for module in (mooncake, azure, burstgpt, sharegpt, splitwise, turns, lengths)
}
"""In the order in which they are recognised: the last one asks for the least."""
AUTO = "auto"
TICK_SEED = 0


def load_trace(
    path: Path,
    format: str = AUTO,
    *,
    limit: int | None = None,
    tick_us: int | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> Workload:
    """The requests of a file in order of arrival, the first one at 0.

    `limit` stops after so many requests of the file. `tick_us` spreads requests that the trace
    stamps with one time over the tick that begins there, uniformly, as if they came by chance.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit = {limit}: at least 1 request is needed; leave it out for all")
    if tick_us is not None and tick_us < 1:
        raise ConfigError(f"tick_us = {tick_us}: a tick is at least 1 us; leave it out for none")
    known = _format(path, format)
    tally = Tally()
    found = known.read(path, Options(count_tokens=count_tokens), tally)
    requests = list(found if limit is None else islice(found, min(limit, sys.maxsize)))
    if not requests:
        raise ConfigError(
            f"{path}: holds no requests{_because(tally)}; name a trace that holds some"
        )
    if len(requests) == limit:
        tally.notes.append(f"limited to the first {limit} requests of the file")
    if not known.has_arrivals(first_line(path)):
        tally.notes.append("no arrival times: all requests arrive at 0")
    ordered = _arrange(requests, tick_us, tally)
    return Workload(
        name=_name(path),
        source=f"{path} ({known.name}, sha256 {_digest(path)}, {len(ordered)} requests)",
        requests=tuple(ordered),
        tokens_per_hash=known.tokens_per_hash if any(one.hash_ids for one in ordered) else 0,
        notes=tally.texts(),
    )


def _format(path: Path, name: str) -> Format:
    if name != AUTO:
        if name not in FORMATS:
            raise ConfigError(
                f"format = {name!r} is not known; use one of {AUTO}, {', '.join(FORMATS)}"
            )
        return FORMATS[name]
    line = first_line(path)
    for known in FORMATS.values():
        if known.recognise(line):
            return known
    kinds = "; ".join(f"{known.name}: {known.what}" for known in FORMATS.values())
    raise ConfigError(
        f"{path}, line 1: {line[:80]!r} begins no known trace format; known are {kinds}"
    )


def _arrange(
    requests: list[WorkloadRequest], tick_us: int | None, tally: Tally
) -> list[WorkloadRequest]:
    """Sorted by arrival, spread over the ticks, and counted from the first one."""
    arrivals = [request.arrival_us for request in requests]
    num_late = sum(b < a for a, b in pairwise(arrivals))
    if num_late:
        tally.notes.append(f"sorted by arrival: {num_late} requests came before their predecessor")
    requests = sorted(requests, key=lambda request: request.arrival_us)
    if tick_us is not None:
        requests = _spread(requests, tick_us)
        tally.notes.append(f"equal arrivals spread uniformly over ticks of {tick_us} us")
    start_us = requests[0].arrival_us
    return [
        msgspec.structs.replace(request, arrival_us=request.arrival_us - start_us)
        for request in requests
    ]


def _spread(requests: Iterable[WorkloadRequest], tick_us: int) -> list[WorkloadRequest]:
    """Within a tick the order of the file stays: a conversation's turns follow each other."""
    rng = np.random.Generator(np.random.PCG64(TICK_SEED))
    spread: list[WorkloadRequest] = []
    for arrival_us, group in groupby(requests, key=lambda request: request.arrival_us):
        members = list(group)
        offsets = np.sort(rng.integers(0, tick_us, size=len(members))).tolist()
        spread += [
            msgspec.structs.replace(request, arrival_us=arrival_us + offset)
            for request, offset in zip(members, offsets, strict=True)
        ]
    return sorted(spread, key=lambda request: request.arrival_us)


def _because(tally: Tally) -> str:
    texts = tally.texts()
    return f" ({'; '.join(texts)})" if texts else ""


def _name(path: Path) -> str:
    return path.name.split(".")[0] or path.name


def _digest(path: Path) -> str:
    """Names the content, so that a result can be told from one on another version of the file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:12]
