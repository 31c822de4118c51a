"""Chaos on vLLM servers: every kind is injected, every answer judged, and lies are found.

The servers are processes that are really killed and frozen; they speak as vLLM does, and compute
nothing.
"""

import io
import random
import shutil
import socket
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from baton.bench.vllm.chaos import chaos_vllm
from baton.bench.vllm.chaos_result import VllmChaos
from baton.config import load_config
from baton.errors import ConfigError


@pytest.fixture
def python(tmp_path):
    """A Python that has servers which speak as vLLM does."""
    place = Path(shutil.copy(Path(__file__).parent / "speaking_vllm.py", tmp_path))
    script = place.with_name("python")
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{place}" "$@"\n')
    script.chmod(0o755)
    return script


def free_ports():
    """The first of two that nobody has, below those that connections are given."""
    for first in random.sample(range(20_000, 30_000, 2), 50):
        with socket.socket() as one, socket.socket() as other, suppress(OSError):
            one.bind(("127.0.0.1", first))
            other.bind(("127.0.0.1", first + 1))
            return first
    raise AssertionError("no two ports are free")


def config(python, *overrides):
    return load_config(
        None,
        [
            "cluster.engine=vllm",
            "model.name=m",
            f'vllm.python="{python}"',
            f"vllm.first_port={free_ports()}",
            "vllm.scrape_ms=20",
            *overrides,
        ],
    )


def chaos(python, tmp_path, *only, minutes=None):
    said, found = io.StringIO(), tmp_path / "found.json"
    code = chaos_vllm(
        config(python),
        Console(file=said, width=200),
        minutes=minutes,
        seed=3,
        only=only,
        json_out=found,
    )
    return code, msgspec.json.decode(found.read_bytes(), type=VllmChaos), said.getvalue()


@pytest.mark.slow
def test_deaths_ends_and_freezes_are_survived_and_told(python, tmp_path):
    kinds = ("kill-prefill", "kill-decode-mid", "restart-decode", "freeze-prefill", "storm")
    code, result, said = chaos(python, tmp_path, *kinds)
    assert code == 0, said
    assert {fault.kind for fault in result.faults} == set(kinds)
    lives = {"prefill-0": 1, "decode-0": 1}
    for fault in result.faults:
        assert fault.recovery_s >= 0 and fault.answers
        if fault.server:
            assert fault.epoch == lives[fault.server]
            lives[fault.server] += fault.kind.startswith(("kill", "restart"))
    (mid,) = [fault for fault in result.faults if fault.kind.endswith("-mid")]
    assert mid.seen == "decode begins to read"
    assert result.modes["disaggregated"] and result.left
    assert len(list(tmp_path.glob("life-*"))) == 5
    assert "clean: 5 faults of 5 kinds" in said and "kill-prefill of prefill-0 epoch 1" in said


@pytest.mark.slow
def test_a_wrong_answer_is_found(python, tmp_path):
    (tmp_path / "lies").touch()
    code, result, said = chaos(python, tmp_path, "storm")
    assert code == 1 and result.wrong and "NOT CLEAN" in said
    assert all("alone" in text for text in result.wrong)


@pytest.mark.parametrize(
    ("overrides", "only", "text"),
    [
        (["vllm.prefill_urls=['http://h:1']", "vllm.decode_urls=['http://h:2']"], (), "its own"),
        (["cluster.prefill=0", "cluster.decode=0", "cluster.mixed=1"], (), "need one of each"),
        ([], ("kill-everybody",), "--only kill-everybody: use one of kill-prefill"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(python, overrides, only, text):
    with pytest.raises(ConfigError, match=text):
        chaos_vllm(
            config(python, *overrides),
            Console(),
            minutes=1,
            seed=1,
            only=only,
            json_out=None,
        )
