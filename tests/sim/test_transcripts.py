"""Every story in tests/transcripts shows exactly what it is written to show.

`pytest tests/sim/test_transcripts.py --record` writes them anew; read the difference before you
keep it.
"""

from pathlib import Path

import pytest

from baton.sim.transcript import USAGE, StoryError, play

FOLDER = Path(__file__).parent.parent / "transcripts"
STORIES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path, request: pytest.FixtureRequest):
    written = path.read_text()
    shown = play(written, path.name)
    if request.config.getoption("--record"):
        path.write_text(shown)
        return
    assert shown.splitlines() == written.splitlines(), f"{path.name}: --record writes it anew"


def test_stories_begin_with_what_they_show_and_end_with_a_leak_check():
    assert len(STORIES) >= 14
    for path in STORIES:
        lines = path.read_text().splitlines()
        commands = [line for line in lines if line.startswith(">")]
        assert lines[0].startswith("# "), path.name
        assert commands[-1] == "> quiet", path.name


def test_every_story_stands_in_the_protocol_document():
    text = (FOLDER.parent.parent / "docs" / "protocol.md").read_text()
    assert [path.name for path in STORIES if f"`{path.name}`" not in text] == []


def test_a_story_is_the_same_every_time():
    text = "> world prefill=2\n> submit r0\n> run\n> quiet\n"
    assert play(text, "a") == play(play(text, "a"), "a")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("dance", "'dance' is no command; known: world, submit"),
        ("submit", "the request's id is missing; usage: submit ID"),
        ("submit r0 prompt=many", "'many' is no number"),
        ("submit r0 colour=red", "colour is not understood; usage: submit ID"),
        ("drop Sael", "'Sael' is no message; known: AbortTransfer"),
        ("drop Seal few", "'few' is no number"),
        ("duplicate Seal after=1h", "'1h' is no time; write it like 250us, 5ms or 2s"),
        ("release", "no message is held"),
        ("forge r0 with=r1", "'r1' was given no capability so far"),
        ("corrupt chunk 1", "by= is missing"),
        (
            "corrupt chunk 1 by=decode-9",
            "no worker 'decode-9' lives; there are prefill-0, decode-1",
        ),
        ("partition decode-1 moon for=1s", "between two of decode-1, prefill-0, router"),
        ("cancel r7", "'r7' is not open; open: none"),
        ("run slowly", "'slowly' is not understood; usage: run"),
        ("run until enlightened", "waited 300 s of virtual time for the trace enlightened"),
        ("world blocks=few", "blocks=few cannot be read"),
        ("world colour=red", "colour= is no option; known: prefill"),
    ],
)
def test_a_wrong_command_is_refused_with_its_place_and_a_remedy(command: str, says: str):
    with pytest.raises(StoryError) as caught:
        play(f"# A story.\n> world\n> {command}\n", "story.txt")
    assert str(caught.value).startswith(f"story.txt:3: > {command}: ")
    assert says in str(caught.value)


def test_a_command_without_a_world_is_refused():
    with pytest.raises(StoryError, match=r"story.txt:1: > run: there is no world yet; begin with"):
        play("> run\n", "story.txt")


def test_a_broken_invariant_ends_a_story():
    story = "> world attempts=9\n> drop Prefill always\n> submit r0\n> quiet\n"
    with pytest.raises(
        StoryError, match=r"story.txt:4: > quiet: nothing-held: decode-1: 4 used blocks"
    ):
        play(story, "story.txt")


def test_every_command_is_used_or_refused_by_usage():
    for verb in USAGE:
        with pytest.raises(StoryError, match=f"usage: {verb}"):
            play(f"> world\n> {verb} nonsense of=a kind= more words than it takes\n", "story.txt")
