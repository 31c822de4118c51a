"""Processes that are measured: one command, its output, and its last words if it fails."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from baton.errors import BatonError


def run_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float,
    folder: Path | None = None,
) -> bytes:
    """What it printed. Raises BatonError, and OSError if it cannot be started."""
    shown = " ".join(command)[:120]
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BatonError(f"{shown}: not over after {timeout_s:.0f} s") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise BatonError(f"{shown}: ended with {done.returncode}: {''.join(last)}")
    return done.stdout
