"""Notices for the operator on standard error; one that cannot be written changes nothing."""

import contextlib
import sys


def notice(place: str, text: str) -> None:
    """Say something about a process. Standard error may be a file on a full disk."""
    with contextlib.suppress(OSError):
        print(f"{place}: {text}", file=sys.stderr)
