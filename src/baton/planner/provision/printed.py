"""An answer as a table for a terminal."""

from rich.console import Console
from rich.table import Table

from baton.planner.provision.answer import Answer, Design, Figures

MARK, TIE = "*", "="


def print_answer(answer: Answer, console: Console) -> None:
    """The design space, best first, with both clocks; then what was tried and what it rests on."""
    console.print(_table(answer))
    for line in (
        f"{MARK} no other fleet here is at least as good in cost, power, machines and rate; {TIE} "
        f"as good in all four as the {MARK} before it, with less room under its bounds",
        *(f"WARNING: {warning}" for warning in answer.warnings),
        f"clocks: medians over seeds {_words(answer.seeds)} of each run's P50 / P90 / P99; "
        f"TBT is {answer.tbt}; {answer.num_simulations} simulations",
        f"prices and powers: {answer.constants!r}; load: {answer.load}",
        *(f"{name}: {source}" for name, source in answer.predictors.items()),
        *answer.statements,
    ):
        console.print(line, highlight=False, markup=False)


def _table(answer: Answer) -> Table:
    table = Table(
        title=f"{answer.question}; best {answer.objective} first",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for name in ("", "design", "fleet"):
        table.add_column(name)
    for name in ("machines", f"cost {answer.cost_unit}", f"power {answer.power_unit}", "req/s"):
        table.add_column(name, justify="right")
    table.add_column("TTFT ms", justify="right")
    table.add_column("TPOT ms", justify="right")
    table.add_column("binds")
    for one in answer.designs:
        table.add_row(*_cells(one))
    return table


def _cells(one: Design) -> list[str]:
    rate = f"{one.rate.value:.4g}"
    if one.rate.high > one.rate.low:
        rate += f" [{one.rate.low:.4g}, {one.rate.high:.4g}]"
    return [
        (TIE if one.same_as else MARK) if one.is_on_front else "",
        one.name,
        str(one.fleet),
        str(one.num_machines),
        f"{one.cost:.4g}",
        f"{one.power:.4g}",
        rate,
        _clock([figures.ttft_ms for figures in one.figures]),
        _clock([figures.tpot_ms for figures in one.figures]),
        _binding(one),
    ]


def _clock(seeds: list[tuple[float, float, float]]) -> str:
    if not seeds:
        return "-"
    middle = [sorted(column)[len(column) // 2] for column in zip(*seeds, strict=True)]
    return " / ".join(f"{value:.0f}" for value in middle)


def _binding(one: Design) -> str:
    if not one.figures:
        return one.binding
    most: Figures = max(one.figures, key=lambda figures: figures.use)
    return f"{one.binding} ({most.use:.0%})"


def _words(seeds: tuple[int, ...]) -> str:
    return ", ".join(map(str, seeds))
