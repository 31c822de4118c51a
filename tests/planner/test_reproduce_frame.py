"""The frame of reproductions: rows, digests, what is not run twice, and the table."""

import re
import subprocess
import sys

import msgspec
import pytest
import typer
from tests.data import DATA, data_file
from typer.testing import CliRunner

from baton.errors import ConfigError
from baton.planner import reproduce
from baton.planner.reproduce.__main__ import read_context
from baton.planner.reproduce.__main__ import reproduce as command
from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.lengths import humaneval, long_prompts, sharegpt
from baton.planner.reproduce.markdown import BEGIN, END, write_markdown
from baton.planner.reproduce.registry import choose, reproductions
from baton.planner.reproduce.row import fact_row, number_row
from baton.planner.reproduce.state import Done, State, digest, load_state, save_state

WANTED = {f"r{number}" for number in (1, 3, 4, 5, *range(7, 16), 24, 27, 28, 29)}


def test_every_result_of_the_planner_and_the_simulator_is_found_by_its_number():
    found = reproductions()
    assert set(found) >= WANTED | {"r16", "r17", "r18", "r21", "r22", "r25", "reuse"}
    numbers = [int(name[1:]) for name in found if re.fullmatch(r"r\d+", name)]
    assert numbers == sorted(numbers)
    assert [one.target_id for one in choose("r24, r1,r24")] == ["r24", "r1"]
    with pytest.raises(ConfigError, match="--only 'r99': not known; use "):
        choose("r99")


def test_rows_are_met_within_their_bounds_and_say_by_how_much_they_miss():
    near = number_row("r0", "x", target="2", measured=[1.9, 2.0, 2.1], low=1.8, high=2.2)
    assert near.met and near.verdict == "met" and "n = 3" in near.interval
    far = number_row("r0", "x", target="2", measured=[1.0, 1.0, 1.0], low=1.8, unit="/s")
    assert far.met is False and far.verdict == "NOT MET"
    assert "misses by 0.8 /s" in far.interval and far.tolerance == ">= 1.8 /s"
    shown = number_row("r0", "x", target="-", measured=3.0)
    assert shown.met is None and shown.interval == "no seed enters"


def test_fewer_than_three_seeds_give_no_interval_and_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="at least 3"):
        Context(folder=tmp_path, seeds=(1, 2))


def counted_reproduction(calls, files=()):
    def run(context):
        calls.append(context.seeds)
        return [fact_row("r0", "x", target="1", measured="1", met=True)]

    return Reproduction(target_id="r0", title="x", source="x", run=run, files=files)


def test_a_finished_one_is_known_by_code_data_and_seeds(tmp_path):
    (tmp_path / "numbers.csv").write_text("1\n")
    one = counted_reproduction([], files=("numbers.csv",))
    context = Context(folder=tmp_path)
    path = tmp_path / "state.json"
    state = State()
    state.done["r0"] = Done(digest=digest(one, context), seconds=1.0, rows=tuple(one.run(context)))
    save_state(path, state)
    loaded = load_state(path)
    assert loaded.finished(one, context) == state.done["r0"]
    assert loaded.finished(one, Context(folder=tmp_path, seeds=(4, 5, 6))) is None
    assert loaded.finished(one, msgspec.structs.replace(context, say=print)) is not None
    with pytest.raises(ConfigError, match=r"other\.csv: no such file; name a folder"):
        digest(counted_reproduction([], files=("other.csv",)), context)
    path.write_text("not json")
    with pytest.raises(ConfigError, match="name another file"):
        load_state(path)


def test_the_table_is_written_between_its_marks(tmp_path):
    path = tmp_path / "table.md"
    path.write_text(f"# Head\n\n{BEGIN}\nold\n{END}\n\ntail | kept\n")
    one = counted_reproduction([])
    row = fact_row("r0", "a | b", target="1", measured="2", met=False, why="because")
    write_markdown(path, [(one, [row])])
    text = path.read_text()
    assert text.startswith("# Head") and text.endswith("tail | kept\n") and "old" not in text
    assert "0 of 1 targets met" in text and r"a \| b" in text and "**NOT MET**" in text


def test_the_command_runs_resumes_and_fails_for_unexplained_misses_only(tmp_path):
    state, rows = tmp_path / "state.json", tmp_path / "rows.json"
    command = [sys.executable, "-m", "baton.planner.reproduce", "--only", "r24,r21"]
    command += ["--state", str(state), "--json", str(rows)]
    first = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert first.returncode == 0, first.stderr
    assert "5 of 5 targets met" in first.stdout and "as before" not in first.stdout
    again = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert again.stdout.count("as before") == 2
    assert len(msgspec.json.decode(rows.read_bytes())) == 5


def test_a_broken_reproduction_reports_its_error_and_the_others_run(tmp_path, monkeypatch):
    (tmp_path / "r98.py").write_text("raise ImportError('no such table')\n")
    (tmp_path / "r99.py").write_text(
        "from baton.planner.reproduce.context import Reproduction\n"
        "def run(context):\n    return [1 / 0]\n"
        "REPRODUCTION = Reproduction(target_id='r99', title='x', source='x', run=run)\n"
    )
    monkeypatch.setattr(reproduce, "__path__", [*reproduce.__path__, str(tmp_path)])
    app = typer.Typer()
    app.command()(command)
    state, rows = tmp_path / "state.json", tmp_path / "rows.json"
    words = ["--only", "r99,r98,r24", "--state", str(state), "--json", str(rows)]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 1, found.output
    assert "2 without" in found.output
    told = {row["target_id"]: row for row in msgspec.json.decode(rows.read_bytes())}
    assert told["r99"]["measured"] == "ZeroDivisionError: division by zero"
    assert told["r98"]["measured"] == "ImportError: no such table"
    assert told["r24"]["met"] and set(load_state(state).done) == {"r24"}


def test_seeds_have_to_be_numbers(tmp_path):
    with pytest.raises(ConfigError, match="--seeds '1,x': write numbers"):
        read_context(tmp_path, "1,x", None)


def test_distserves_recipes_come_near_its_published_means():
    for name in ("lengths/sharegpt_v3_turns_gpt2_tokenizer.csv.gz",):
        data_file(name)
    context = Context(folder=DATA)
    for recipe, prompt, output in (
        (sharegpt, 755.5, 200.3),
        (humaneval, 171.3, 98.2),
        (long_prompts, 1738.3, 90.7),
    ):
        found = recipe(context)
        assert found.num_prompt.mean() == pytest.approx(prompt, rel=0.03)
        assert found.num_output.mean() == pytest.approx(output, rel=0.03)
        assert (found.num_prompt + found.num_output).max() < 2049
