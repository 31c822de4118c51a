"""Pages of which parts are generated: from `<!-- generated: NAME -->` to `<!-- end -->`."""

import re
from collections.abc import Callable, Mapping

from baton.errors import LocalProtocolError

_PART = re.compile(r"(<!-- generated: ([\w -]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def render_page(page: str, parts: Mapping[str, Callable[[], str]], name: str) -> str:
    """The page with every generated part renewed; each part must be there exactly once."""
    names = [match.group(2) for match in _PART.finditer(page)]
    _require(
        sorted(names) == sorted(parts), name, f"parts are {sorted(names)}, not {sorted(parts)}"
    )
    opened = page.count("<!-- generated:")
    _require(opened == len(names) == page.count("<!-- end -->"), name, "a marker has no partner")
    return _PART.sub(lambda match: f"{match[1]}{parts[match[2]]()}{match[4]}", page)


def _require(condition: bool, name: str, text: str) -> None:
    if not condition:
        raise LocalProtocolError(f"{name}: {text}")
