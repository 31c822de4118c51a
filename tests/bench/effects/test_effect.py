"""The table says what was met, what was not, and what nobody could decide."""

import msgspec
import pytest
from rich.console import Console

from baton.bench.effects.__main__ import MEASURES, chosen, main
from baton.bench.effects.effect import Effect, exit_code, print_effects
from baton.errors import ConfigError


def effect(met: bool | None) -> Effect:
    return Effect(
        id="X0", title="a title", measured="7 ms", accept="at most 8 ms", met=met, figures={"a": 7}
    )


def test_the_table_shows_every_verdict():
    console = Console(width=120, record=True, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        print_effects([effect(True), effect(False), effect(None)], console)
    shown = captured.get()
    for text in ("X0", "a title", "7 ms", "at most 8 ms", "met", "NOT MET", "not decided"):
        assert text in shown


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [((True,), 0), ((True, None), 0), ((True, False), 1), ((), 0)],
)
def test_only_what_was_decided_against_fails(verdicts, code):
    assert exit_code([effect(met) for met in verdicts]) == code


def test_an_effect_can_be_written_down():
    written = msgspec.json.decode(msgspec.json.encode(effect(False)))
    assert written["met"] is False and written["figures"] == {"a": 7}


def test_effects_are_chosen_by_id_in_their_own_order():
    assert chosen("") == tuple(MEASURES) == ("x5", "x6", "x7", "x8", "x9", "x10", "x11")
    assert chosen("X11, x7") == ("x7", "x11")
    with pytest.raises(ConfigError, match="x4: no such effect"):
        chosen("x4")


def test_a_bad_choice_ends_with_its_reason(capsys):
    assert main(["--only", "x99"]) == 2
    assert "x99" in capsys.readouterr().err
