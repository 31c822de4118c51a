"""The page around the figures: one file that needs no network, for light and dark screens."""

import html
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import msgspec

from baton.bench.report.figure import Figure
from baton.output_file import write_file


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Plain rows under a head; the first column names them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


class Tile(msgspec.Struct, frozen=True, kw_only=True):
    """One number that is worth a large font."""

    label: str
    value: str
    note: str = ""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the page, from the top: title, words, tiles, figures, tables."""

    title: str = ""
    text: str = ""
    tiles: tuple[Tile, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()


def write_report(path: Path, title: str, headline: str, sections: Sequence[Section]) -> None:
    """Write the page. Raises ConfigError when the file cannot be written."""
    write_file(path, render_report(title, headline, sections).encode(), "report")


def render_report(title: str, headline: str, sections: Sequence[Section]) -> str:
    """The whole page as one text."""
    figures = {
        f"figure-{at}-{index}": figure
        for at, section in enumerate(sections)
        for index, figure in enumerate(section.figures)
    }
    plots = {
        key: {"data": one.data, "layout": one.layout, "height": one.height}
        for key, one in figures.items()
    }
    body = "\n".join(_section(at, section) for at, section in enumerate(sections))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>\n{_own_file('page.css')}</style>\n"
        f"{_library() if plots else ''}</head>\n<body>\n<main>\n"
        f'<header><p class="title">{_text(title)}</p><h1>{_text(headline)}</h1></header>\n'
        f'{body}\n</main>\n<script type="application/json" id="plots">{_json(plots)}</script>\n'
        f"<script>\n{_own_file('page.js')}</script>\n</body>\n</html>\n"
    )


def _section(at: int, section: Section) -> str:
    parts = ["<section>"]
    if section.title:
        parts.append(f"<h2>{_text(section.title)}</h2>")
    parts += [f"<p>{_text(one)}</p>" for one in section.text.splitlines() if one]
    if section.tiles:
        parts.append(f'<div class="tiles">{"".join(map(_tile, section.tiles))}</div>')
    for index, figure in enumerate(section.figures):
        parts.append(
            f'<figure><h3>{_text(figure.title)}</h3><div class="plot" id="figure-{at}-{index}" '
            f'style="height:{figure.height}px" role="img" aria-label="{_text(figure.title)}"></div>'
            f"<figcaption>{_text(figure.caption)}</figcaption></figure>"
        )
    parts += map(_table, section.tables)
    return "\n".join([*parts, "</section>"])


def _tile(tile: Tile) -> str:
    note = f'<span class="note">{_text(tile.note)}</span>' if tile.note else ""
    return (
        f'<div class="tile"><span class="label">{_text(tile.label)}</span>'
        f'<span class="value">{_text(tile.value)}</span>{note}</div>'
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{_text(column)}</th>" for column in table.columns)
    rows = "".join(
        "<tr>"
        + f"<th>{_text(first)}</th>"
        + "".join(f"<td>{_text(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in table.rows
    )
    caption = f"<caption>{_text(table.caption)}</caption>" if table.caption else ""
    shown = f"<thead><tr>{head}</tr></thead>" if any(table.columns) else ""
    return f'<div class="scroll"><table>{caption}{shown}<tbody>{rows}</tbody></table></div>'


def _library() -> str:
    """Plotly itself, once."""
    from plotly.offline import get_plotlyjs

    return f"<script>{get_plotlyjs()}</script>\n"


def _own_file(name: str) -> str:
    return (resources.files("baton.bench.report") / name).read_text(encoding="utf-8")


def _json(value: object) -> str:
    # Inside a script element only "</" could end the data early.
    return msgspec.json.encode(value).decode().replace("</", "<\\/")


def _text(text: str) -> str:
    return html.escape(text)
