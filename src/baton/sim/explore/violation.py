"""A broken promise, found outside the nodes."""


class Violation(Exception):
    """What was broken, in one line; the search adds the way that leads there."""


def require(holds: bool, text: str) -> None:
    """Raise a violation unless a promise holds."""
    if not holds:
        raise Violation(text)
