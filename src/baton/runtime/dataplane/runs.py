"""Runs of an order: coalesced, checked against both regions, then turned into views."""

from collections.abc import Iterable

from baton.runtime.dataplane.arena import Bytes

Run = tuple[int, int, int]


def coalesce(runs: Iterable[Run]) -> list[Run]:
    """Join runs that are neighbours on both sides, and drop empty ones; the bytes stay the same."""
    joined: list[Run] = []
    local = remote = nbytes = 0
    for next_local, next_remote, next_nbytes in runs:
        if local + nbytes == next_local and remote + nbytes == next_remote and nbytes > 0:
            nbytes += next_nbytes
            continue
        if nbytes:
            joined.append((local, remote, nbytes))
        local, remote, nbytes = next_local, next_remote, next_nbytes
    if nbytes:
        joined.append((local, remote, nbytes))
    return joined


def fault_in(runs: Iterable[Run], local_nbytes: int, remote_nbytes: int) -> str:
    """Say which run leaves its region, or return an empty text. Sizes are in bytes."""
    for local, remote, nbytes in runs:
        if nbytes < 0 or local < 0 or remote < 0:
            return f"run ({local}, {remote}, {nbytes}) has a negative field"
        if local + nbytes > local_nbytes or remote + nbytes > remote_nbytes:
            return (
                f"run ({local}, {remote}, {nbytes}) leaves a region of {local_nbytes} local "
                f"or {remote_nbytes} remote bytes"
            )
    return ""


def stage_fault(stage: int, num_stages: int) -> str:
    """Say that an order names a stage which is not there, or return an empty text."""
    return "" if 0 <= stage < num_stages else f"stage {stage} is none of {num_stages}"


def local_views(region: Bytes, runs: Iterable[Run]) -> list[Bytes]:
    """Views of the local side of `runs`."""
    return [region[local : local + nbytes] for local, _, nbytes in runs]


def remote_views(region: Bytes, runs: Iterable[Run]) -> list[Bytes]:
    """Views of the remote side of `runs`."""
    return [region[remote : remote + nbytes] for _, remote, nbytes in runs]


def cut(runs: Iterable[Run], limit_nbytes: int) -> list[list[Run]]:
    """Cut runs into pieces of at most `limit_nbytes`, in order; small runs share one."""
    pieces: list[list[Run]] = []
    room = 0
    for local, remote, nbytes in runs:
        done = 0
        while done < nbytes:
            if not room:
                pieces.append([])
                room = limit_nbytes
            part = min(room, nbytes - done)
            pieces[-1].append((local + done, remote + done, part))
            done += part
            room -= part
    return pieces
