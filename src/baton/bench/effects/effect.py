"""One measured effect beside what would be accepted, and the table that shows many."""

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, and whether it is what the effect promises."""

    id: str
    """As in docs/effects.md: X1, X2, ..."""
    title: str
    measured: str
    """The figures in words, with units and how many of each."""
    accept: str
    """The line that decides; written before anything was measured."""
    met: bool | None
    """None: nothing could be decided here, and `measured` says why."""
    figures: dict[str, Any] = {}
    """The same figures for programs; names end in their units."""

    @property
    def verdict(self) -> str:
        """The last column of the table."""
        return {True: "met", False: "NOT MET", None: "not decided"}[self.met]


_STYLES = {True: "green", False: "bold red", None: "yellow"}


def print_effects(effects: Sequence[Effect], console: Console, title: str = "Effects") -> None:
    """One table, one row each."""
    table = Table(title=title, title_justify="left", show_lines=True)
    table.add_column("id", no_wrap=True)
    for column, ratio in (("effect", 2), ("measured", 5), ("accept", 3)):
        table.add_column(column, overflow="fold", ratio=ratio)
    table.add_column("", no_wrap=True)
    for effect in effects:
        style = _STYLES[effect.met]
        table.add_row(
            effect.id,
            effect.title,
            effect.measured,
            effect.accept,
            f"[{style}]{effect.verdict}[/{style}]",
        )
    console.print(table, markup=True)


def exit_code(effects: Sequence[Effect]) -> int:
    """1 when an effect was decided against, 0 otherwise."""
    return int(any(effect.met is False for effect in effects))
