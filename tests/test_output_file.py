"""Files of results: whole, or as they were."""

import os
import stat
import subprocess
import sys

import pytest

from baton.errors import ConfigError
from baton.output_file import output_file, write_file


def test_what_was_written_is_there_and_nothing_else(tmp_path):
    write_file(tmp_path / "a.json", b"{}", "--json")
    assert (tmp_path / "a.json").read_bytes() == b"{}"
    assert os.listdir(tmp_path) == ["a.json"]


def test_modes_follow_the_umask_like_those_of_any_new_file(tmp_path):
    write_file(tmp_path / "a", b"", "--json")
    (tmp_path / "b").write_bytes(b"")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"}
    assert len(modes) == 1


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_ends_early_leaves_the_former_file(tmp_path, error):
    path = tmp_path / "a.csv"
    path.write_text("former")
    expected = ConfigError if isinstance(error, OSError) else KeyboardInterrupt

    def write():
        with output_file(path, "--table") as place:
            place.write_text("half of")
            raise error

    with pytest.raises(expected):
        write()
    assert path.read_text() == "former" and os.listdir(tmp_path) == ["a.csv"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_full_device_is_named_with_its_flag(tmp_path):
    link = tmp_path / "full.json"
    link.symlink_to("/dev/full")
    with pytest.raises(ConfigError, match=r"--json .*full.json cannot be written: No space left"):
        write_file(link, b"x" * 100_000)
    assert link.is_symlink()


def test_links_stay_links(tmp_path):
    (tmp_path / "real").write_text("former")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"


def test_a_folder_that_is_gone_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"--out .*cannot be written: No such file"):
        write_file(tmp_path / "gone" / "a", b"", "--out")


def test_the_standard_output_is_added_to_and_not_replaced(tmp_path):
    code = (
        "from pathlib import Path; from baton.output_file import write_file; "
        "print('before', flush=True); write_file(Path('/dev/stdout'), b'json'); print('after')"
    )
    place = tmp_path / "out"
    with place.open("a") as stream:
        subprocess.run([sys.executable, "-c", code], stdout=stream, check=True)
    assert place.exists() and "after" in place.read_text() and "json" in place.read_text()
