"""The names nearest to one that is not known, for errors that help."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Best first; letters' case, dashes and underscores make no difference."""
    by_key: dict[str, str] = {}
    for one in known:
        by_key.setdefault(_key(one), one)
    close = difflib.get_close_matches(_key(name), list(by_key), n=count, cutoff=0.4)
    return [by_key[key] for key in close] or sorted(by_key.values())[:count]


def _key(name: str) -> str:
    return name.lower().replace("_", "-")
