"""A `--trace-dir` that can be no folder is named before anything starts, by both engines."""

from pathlib import Path

import pytest

from baton.config import load_config
from baton.errors import ConfigError
from baton.runtime.deployment import deploy
from baton.runtime.trace_log import make_trace_dir
from baton.runtime.vllm.tracer import Tracer


async def test_a_file_is_no_trace_dir(tmp_path):
    path = tmp_path / "afile"
    path.write_text("mine")
    config = load_config(None, ["model.name=tiny"])
    told = f"--trace-dir {path}: it is no folder; name a folder"
    with pytest.raises(ConfigError, match=told):
        async with deploy(config, lambda *_: None, trace_dir=path, start_workers=False):
            pass
    with pytest.raises(ConfigError, match=told):
        Tracer(config, path)
    with pytest.raises(ConfigError, match="Not a directory; name a folder"):
        make_trace_dir(path / "below")
    assert path.read_text() == "mine"


def test_where_no_folder_can_be_made_says_so(tmp_path):
    make_trace_dir(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    with pytest.raises(ConfigError, match="--trace-dir /proc/nowhere: "):
        make_trace_dir(Path("/proc/nowhere"))
