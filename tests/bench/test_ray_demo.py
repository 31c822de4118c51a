"""Two Ray nodes in namespaces of their own: what `make demo-ray` shows, held to it step by step."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest

from baton.runtime.dataplane.nixl import is_installed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed: pip install 'kvbaton[ray]'",
    ),
    pytest.mark.skipif(
        not is_installed(), reason="NIXL is not installed: pip install 'kvbaton[nixl]'"
    ),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None,
        reason="two nodes on one host need network namespaces: root and iproute2",
    ),
]
TIMEOUT_S = 540.0
STEPS = (
    "the plan's third worker is on the other node",
    "one configuration digest",
    "answers across nodes equal colocated ones",
    "K/V crossed by NIXL over tcp",
    "decode-1 killed under an answer: the answer is equal",
    "answers after it",
    "the end of decode-1's lost life is proven",
    "and it has ended",
    "answers after the loss of a keeper",
    "answers without that node",
    "answers after the loss of a node",
    "baton drain decode-2",
    "answers after the drain and the removal",
    "no request met an error",
    "no block and no copy is held",
    "baton serve ended",
    "nothing of it is left in shared memory",
)


@pytest.fixture(scope="module")
def shown():
    """What the command printed, and how it ended."""
    run = subprocess.run(
        [sys.executable, "-m", "baton.bench.ray"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_as_it_must_be(shown, step):
    assert f"s] ok   {step}" in shown[1], shown[1]


def test_no_other_step_failed_and_lives_were_counted(shown):
    code, text = shown
    assert (code, "FAIL" in text) == (0, False), text
    assert re.search(r"decode-1 serves as epoch 2 \S+ s later", text), text


def test_every_step_is_asked_for(shown):
    assert len(re.findall(r"s\] ok   ", shown[1])) == len(STEPS)


def test_no_process_and_no_namespace_is_left(shown):
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    assert "baton-" not in listed.stdout
