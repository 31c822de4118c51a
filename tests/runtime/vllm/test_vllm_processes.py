"""Servers that are started here: command lines, restarts under new epochs, ends that are told."""

import json
import os
import shutil
import signal
import socket
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from tests.runtime.vllm.front import get, until

from baton.config import load_config
from baton.core.ids import Role
from baton.errors import BatonError, ConfigError
from baton.runtime.vllm.command import (
    most_ranks,
    ports_of,
    server_command,
    server_cores,
    server_environment,
)
from baton.runtime.vllm.serve import open_vllm_front, until_failure, wait_complete


def config(*overrides):
    return load_config(None, ["cluster.engine=vllm", "model.name=m", "gateway.port=0", *overrides])


def test_the_command_names_role_connector_and_events():
    loaded = config('vllm.arguments=["--seed","3"]', 'vllm.decode_arguments=["--max-log-len","9"]')
    ports = ports_of(8100, 1)
    words = server_command(loaded, "/model", Role.DECODE, ports)
    value = dict(pairwise(words))
    transfer = json.loads(value["--kv-transfer-config"])
    assert transfer["kv_connector"] == "NixlConnector" and transfer["kv_role"] == "kv_consumer"
    assert json.loads(value["--kv-events-config"])["replay_endpoint"] == "tcp://127.0.0.1:8401"
    assert value["--block-size"] == "32" and value["--port"] == "8101"
    assert words[-4:] == ["--seed", "3", "--max-log-len", "9"]
    assert "--kv-transfer-config" not in server_command(loaded, "/m", Role.MIXED, ports)
    environment = server_environment(loaded, 1, (1,), ports)
    assert environment["VLLM_CPU_OMP_THREADS_BIND"] == "1"
    assert environment["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "8201"


def test_ranks_get_ports_cores_and_devices_of_their_own():
    loaded = config("vllm.connector=baton", "vllm.key_folder=k", "vllm.prefill_tp=2")
    first, second = (ports_of(8100, ordinal, most_ranks(loaded.vllm)) for ordinal in (0, 1))
    assert (first.control, second.control) == (8500, 8502)
    words = server_command(loaded, "/m", Role.PREFILL, first)
    assert dict(pairwise(words))["--tensor-parallel-size"] == "2"
    assert "--tensor-parallel-size" not in server_command(loaded, "/m", Role.DECODE, second)
    assert [len(cores) for cores in server_cores(loaded)] == [2, 1]
    environment = server_environment(loaded, 0, (4, 5), first, 2)
    assert environment["VLLM_CPU_OMP_THREADS_BIND"] == "4|5"
    on_gpu = config("model.device=cuda", "vllm.prefill_tp=2")
    assert server_environment(on_gpu, 1, (), second, 2)["CUDA_VISIBLE_DEVICES"] == "2,3"
    with pytest.raises(ConfigError, match=r"vllm\.decode_tp: 0"):
        config("vllm.decode_tp=0")


@pytest.fixture
def python(tmp_path):
    """An executable that behaves as a Python with vLLM would, without a model."""
    shutil.copy(Path(__file__).parent / "plain_server.py", tmp_path)
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/plain_server.py "$@"\n')
    script.chmod(0o755)
    return script


def is_running(pid):
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def started(python, *overrides):
    return config(
        f'vllm.python="{python}"',
        f"vllm.first_port={min(free_port(), 64000)}",
        "cluster.prefill=0",
        "cluster.decode=0",
        "cluster.mixed=1",
        "vllm.scrape_ms=20",
        *overrides,
    )


async def test_a_killed_server_starts_again_under_a_new_epoch(python):
    async with open_vllm_front(started(python)) as front:
        await wait_complete(front, 20.0)
        (slot,) = front.processes.slots
        assert slot.server.epoch == 1
        first = slot.process.pid
        child = int((python.parent / f"child-{first}").read_text())
        os.kill(first, signal.SIGKILL)  # its leader alone, as the kernel would for memory
        await until(lambda: slot.server.epoch == 2, 20.0)
        assert slot.process.pid != first and slot.server.is_up
        assert not is_running(child)
        assert (await get(front, "/health")).status == 200
        last = slot.process
    assert last.returncode is not None


async def test_a_server_that_never_serves_is_told_with_its_own_words(python):
    (python.parent / "broken").touch()
    async with open_vllm_front(started(python)) as front:
        with pytest.raises(BatonError, match=r"mixed-0 ended 3 times .* that no server takes"):
            await wait_complete(front, 30.0)
        with pytest.raises(BatonError, match="mixed-0"):
            await until_failure(front)


async def test_a_python_without_vllm_is_refused():
    with pytest.raises(ConfigError, match=r"vllm\.python .* has no vLLM; name the Python"):
        async with open_vllm_front(config(f'vllm.python="{sys.executable}"')):
            pass
    with pytest.raises(ConfigError, match=r"vllm\.python '/no/python' cannot be run"):
        async with open_vllm_front(config('vllm.python="/no/python"')):
            pass


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ('vllm.prefill_urls=["127.0.0.1:1"]', "is not the base URL of a server"),
        ('vllm.mixed_urls=["http://h:99999"]', "has port 99999; use 1 to 65535"),
        ('vllm.mixed_urls=["http://h:1,control=tcp://h:0"]', "has port 0; use 1 to 65535"),
        ('vllm.prefill_urls=["http://h:1"]', r"vllm\.decode_urls: none; name at least one"),
        ('vllm.prefill_urls=["http://h:1,event=tcp://h:2"]', "is not understood"),
        ('vllm.mixed_urls=["http://h:1","http://h:1/"]', "is named 2 times"),
        ("vllm.scrape_ms=1", r"vllm\.scrape_ms: 1; use 10 or more"),
        ('vllm.connector="other"', "use one of nixl, baton"),
    ],
)
def test_settings_that_cannot_serve_are_refused_by_name(override, text):
    with pytest.raises(ConfigError, match=text):
        config(override)


def test_urls_without_the_engine_are_refused():
    with pytest.raises(ConfigError, match="add --engine vllm"):
        load_config(None, ['vllm.mixed_urls=["http://h:1"]'])
