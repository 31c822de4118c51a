"""Writes the generated parts of docs/protocol.md from the tables, messages and values in the code.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; everything else in
the page is written by hand and kept. Run `python -m baton.protocol.diagrams docs/protocol.md`.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, get_args

from baton.core.capability import Capability, Region, SignedCapability
from baton.core.compatibility import COMPATIBILITY
from baton.core.generated_page import render_page
from baton.core.ids import Direction, Fence, Mode, Role, Schedule
from baton.core.layout import AXIS_ORDER, DTYPE_NBYTES, KVLayout, ModelIdentity, ModelInfo
from baton.core.machine import Table
from baton.core.manifest import (
    BlockSizes,
    ChunkGeometry,
    ChunkSpec,
    Grant,
    HandoffManifest,
    PipelineSizes,
    PlacementNamespace,
    RequestNamespace,
    SealedChunk,
    TensorNamespace,
)
from baton.core.messages import Envelope, Message, TokenRow
from baton.core.request import SLO, Request, SamplingParams, Token, TopLogprob, Usage
from baton.core.snapshot import LoadSnapshot, Rates, WorkerInfo
from baton.errors import LocalProtocolError
from baton.protocol.chunk import CHUNK
from baton.protocol.copy import HISTORY_COPY
from baton.protocol.request import REQUEST
from baton.protocol.source_copy import SOURCE_COPY
from baton.protocol.transfer import TRANSFER

VALUES: tuple[type, ...] = (
    Envelope,
    Fence,
    Grant,
    BlockSizes,
    PipelineSizes,
    ChunkGeometry,
    ChunkSpec,
    SignedCapability,
    Capability,
    Region,
    HandoffManifest,
    RequestNamespace,
    ModelIdentity,
    TensorNamespace,
    KVLayout,
    PlacementNamespace,
    SealedChunk,
    Token,
    TopLogprob,
    TokenRow,
    Request,
    SamplingParams,
    SLO,
    Usage,
    WorkerInfo,
    ModelInfo,
    LoadSnapshot,
    Rates,
)
ENUMS: tuple[type[StrEnum], ...] = (Direction, Schedule, Role, Mode)
_SECTION = re.compile(r" \((?:specification )?0x[^)]*\)")
"""The code cites the specification that it implements; a reader of the page need not have it."""
_ROUTE = re.compile(r"(.+?) to (.+?)[,:] (.+)", re.DOTALL)


class Field(NamedTuple):
    """One field as its source text says it."""

    name: str
    type: str
    default: str
    meaning: str


def fields_of(kind: type) -> list[Field]:
    """Fields of a struct in order; a string literal below a field is its meaning."""
    node = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(node, ast.ClassDef)
    found: list[Field] = []
    for item, after in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        if not isinstance(item, ast.AnnAssign):
            continue
        assert isinstance(item.target, ast.Name)
        default = _default(kind, item.value)
        meaning = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            meaning = str(after.value.value)
        found.append(Field(item.target.id, ast.unparse(item.annotation), default, meaning))
    return found


def _default(kind: type, value: ast.expr | None) -> str:
    """A default as its source says it; a constant's value instead of its name."""
    if isinstance(value, ast.Name):
        return repr(vars(sys.modules[kind.__module__])[value.id])
    return ast.unparse(value) if value else ""


def one_line(text: str | None) -> str:
    """A docstring on one line, without citations, safe inside a Markdown table."""
    return _SECTION.sub("", " ".join((text or "").split())).replace("|", "\\|")


def machine_part(table: Table[Any, Any]) -> str:
    """One state machine: its diagram and its ends."""
    ends = ", ".join(f"`{state}`" for state in table.states if state in table.terminal)
    meaning = one_line(type(table.initial).__doc__)
    return f"```mermaid\n{table.mermaid()}\n```\n\n{meaning} Ends: {ends}.\n"


def fields_cell(kind: type) -> str:
    """The fields of a struct in one table cell."""
    cells = []
    for field in fields_of(kind):
        default = f" = {field.default}" if field.default else ""
        text = f"{field.name}: {field.type}{default}"
        cells.append(f"`{text}`".replace("|", "\\|"))
    return "<br>".join(cells)


def meaning_cell(kind: type, text: str) -> str:
    """What a struct means, followed by what its documented fields mean."""
    notes = [f"`{f.name}`: {one_line(f.meaning)}" for f in fields_of(kind) if f.meaning]
    return " ".join([text[0].upper() + text[1:], *notes])


def messages_part() -> str:
    """Every message: tag, who to whom, fields, meaning."""
    rows = ["| message (`type`) | from | to | fields | meaning |", "|---|---|---|---|---|"]
    for kind in get_args(Message):
        route = _ROUTE.fullmatch(one_line(kind.__doc__))
        _require(route is not None, f"{kind.__name__}: say 'SENDER to RECEIVER: meaning'")
        assert route is not None
        sender, receiver, text = route.groups()
        name = f"{kind.__name__} (`{kind.__struct_config__.tag}`)"
        meaning = meaning_cell(kind, text)
        rows.append(f"| {name} | {sender.lower()} | {receiver} | {fields_cell(kind)} | {meaning} |")
    return "\n".join(rows) + "\n"


def values_part() -> str:
    """The values that messages carry: fields and meaning."""
    rows = ["| value | fields | meaning |", "|---|---|---|"]
    for kind in VALUES:
        meaning = meaning_cell(kind, one_line(kind.__doc__))
        rows.append(f"| {kind.__name__} | {fields_cell(kind)} | {meaning} |")
    return "\n".join(rows) + "\n"


def enums_part() -> str:
    """The values of every enumeration, and of the fields that hold one of a few texts."""
    rows = ["| type or field | values | meaning |", "|---|---|---|"]
    for kind in ENUMS:
        values = ", ".join(f"`{value}`" for value in kind)
        rows.append(f"| {kind.__name__} | {values} | {one_line(kind.__doc__)} |")
    sizes = ", ".join(f"`{name}` ({nbytes})" for name, nbytes in DTYPE_NBYTES.items())
    rows.append(f"| `dtype_k`, `dtype_v` | {sizes} | Scalar type and its bytes. |")
    rows.append(f"| `axis_order` | `{AXIS_ORDER}` | Of a pool, outermost first. |")
    return "\n".join(rows) + "\n"


def compatibility_part() -> str:
    """The first frame of every control message of this version."""
    return f"```\n{COMPATIBILITY.decode()}\n```\n"


def _machine(table: Table[Any, Any]) -> Callable[[], str]:
    return lambda: machine_part(table)


PARTS: dict[str, Callable[[], str]] = {
    "compatibility": compatibility_part,
    "transfer machine": _machine(TRANSFER),
    "chunk machine": _machine(CHUNK),
    "history copy machine": _machine(HISTORY_COPY),
    "source copy machine": _machine(SOURCE_COPY),
    "request machine": _machine(REQUEST),
    "messages": messages_part,
    "values": values_part,
    "enums": enums_part,
}


def render(page: str) -> str:
    """The page with every generated part renewed; each part must be there exactly once."""
    return render_page(page, PARTS, "docs/protocol.md")


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise LocalProtocolError(f"docs/protocol.md: {text}")


def main(arguments: Iterable[str]) -> None:
    """Rewrite each page named on the command line."""
    for name in arguments:
        path = Path(name)
        path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
