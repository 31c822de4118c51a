"""`python -m baton.engine.prepare NAME`: makes a model ready; one JSON object per line of output.

Progress lines are `{"stage", "fraction"}`; the last is `{"path"}`, or `{"error"}` with status 2.
"""

import json
import sys

from baton.engine.loader import resolve_model
from baton.errors import BatonError


def main(arguments: list[str]) -> int:
    """Resolve the one model named in `arguments`, reporting to stdout."""
    if len(arguments) != 1:
        _emit({"error": "usage: python -m baton.engine.prepare NAME"})
        return 2
    try:
        path = resolve_model(
            arguments[0], lambda stage, fraction: _emit({"stage": stage, "fraction": fraction})
        )
    except BatonError as error:
        _emit({"error": str(error)})
        return 2
    _emit({"path": str(path)})
    return 0


def _emit(line: dict[str, object]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
