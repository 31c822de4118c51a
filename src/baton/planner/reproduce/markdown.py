"""The table of docs/reproductions.md, from the rows of a run."""

from collections.abc import Sequence
from pathlib import Path

from baton.planner.reproduce.context import Reproduction
from baton.planner.reproduce.row import Row

BEGIN = '<!-- begin: written by `make reproduce ARGS="--markdown docs/reproductions.md"` -->'
END = "<!-- end -->"
HEAD = "| what | published | accepted | ours | 95 % interval | | why, conditions |"
RULE = "| --- | --- | --- | ---: | --- | --- | --- |"


def markdown(found: Sequence[tuple[Reproduction, Sequence[Row]]]) -> str:
    """One section for each result."""
    judged = [row for _, rows in found for row in rows if row.met is not None]
    num_met = sum(bool(row.met) for row in judged)
    parts = [f"{num_met} of {len(judged)} targets met."]
    for one, rows in found:
        parts.append(f"\n### {one.target_id.upper()} {one.title}\n\n{one.source}\n")
        parts += [HEAD, RULE, *(_line(row) for row in rows)]
    return "\n".join(parts) + "\n"


def write_markdown(path: Path, found: Sequence[tuple[Reproduction, Sequence[Row]]]) -> None:
    """Between the marks of a file that has them; else the table is the file."""
    table = markdown(found)
    text = path.read_text() if path.exists() else f"{BEGIN}\n{END}\n"
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        path.write_text(table)
        return
    path.write_text(f"{before}{BEGIN}\n\n{table}\n{END}{after}")


def _line(row: Row) -> str:
    kind = "" if row.kind == "reproduction" else f"{row.kind}. "
    verdict = f"**{row.verdict}**" if row.met is False else row.verdict
    cells = (
        row.what,
        row.target,
        row.tolerance,
        row.measured,
        row.interval,
        verdict,
        kind + row.why,
    )
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
