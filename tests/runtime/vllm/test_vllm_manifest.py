"""The manifest of vLLM servers: what is known of them, what is not, and what a start is held to."""

import asyncio
import io
import json
import threading
import time

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console
from tests.integrations.vllm.servers import rank_info
from tests.integrations.vllm.test_mover import free_port
from tests.runtime.vllm.faulty_vllm import FaultyVllm, running, start
from tests.runtime.vllm.front import config_of, get, pair, until
from typer.testing import CliRunner

from baton.cli import app
from baton.config import load_config
from baton.core.ids import Role
from baton.core.layout import ModelIdentity
from baton.core.vllm_manifest import UNKNOWN, ServerManifest, VllmManifest
from baton.core.vllm_settings import ServerAddress
from baton.errors import ConfigError
from baton.integrations.vllm.keys import MEMBER_FILE, load_member, mint_keys
from baton.integrations.vllm.link import Link
from baton.integrations.vllm.messages import COMPATIBILITY, Envelope, Status
from baton.runtime.deployment_record import load_manifest, load_vllm_manifest
from baton.runtime.vllm.command import ports_of, server_command
from baton.runtime.vllm.commanded import Commanded, commanded
from baton.runtime.vllm.manifest_keeper import server_manifest
from baton.runtime.vllm.serve import open_vllm_front, serve_vllm, wait_complete
from baton.runtime.vllm.servers import Server

CACHE = {"block_size": "64", "cache_dtype": "auto", "enable_prefix_caching": "False"}


def a_server(role=Role.PREFILL, version="0.32.0"):
    server = Server("prefill-0", ServerAddress(role=role, url="http://h:1"))
    server.model, server.root, server.version = "m", "/models/m", version
    return server


def silent():
    """A console whose words can be read."""
    return Console(file=io.StringIO(), width=200)


async def test_version_shows_what_stock_servers_say_and_names_what_they_do_not():
    async with pair() as (front, _, _):
        record = (await get(front, "/version")).json["deployment"]
        manifest = msgspec.convert(record["manifest"], VllmManifest)
        assert record["digest"] == manifest.digest == record["receipt"]["manifest_digest"]
        assert record["receipt"]["worker_epochs"] == {"prefill-0": 1, "decode-0": 1}
        assert record["receipt"]["route_epoch"] == 0
        decode = manifest.servers["decode-0"]
        assert (decode.role, decode.vllm, decode.model) == ("decode", "0.32.0", "model")
        assert (decode.cache_abi.block_size, decode.prefix_caching) == (32, "on")
        assert manifest.hosts == (("prefill-0", "decode-0"),)
        assert manifest.handoff.direction == "pull"
        for name in ("checkpoint_hash", "connector", "attention_backend", "cache_abi.tp_size"):
            assert f"servers.decode-0.{name}" in manifest.unknown
        assert "servers.decode-0.vllm" not in manifest.unknown


async def test_a_later_life_that_differs_is_not_admitted_and_the_one_from_before_is():
    async with pair(decodes=2) as (front, _, sinks):
        before = (await get(front, "/version")).json["deployment"]
        server, changed = front.backend.servers["decode-1"], sinks[1]
        await changed.runner.cleanup()
        await until(lambda: not server.is_up)
        changed.release, changed.block_size, changed.started = "0.33.1", 16, time.time() + 9
        await start(changed)
        await until(lambda: "manifest" in server.why_down)
        assert 'vllm is "0.33.1" and must be "0.32.0"' in server.why_down
        assert "cache_abi.block_size is 16 and must be 32" in server.why_down
        assert not server.is_up and server.epoch == 1
        changed.release, changed.block_size = "", 32  # its page cannot be read
        await until(lambda: f'vllm is "{UNKNOWN}" and must be "0.32.0"' in server.why_down)
        changed.release = "0.32.0"
        await until(lambda: server.is_up)
        after = (await get(front, "/version")).json["deployment"]
        assert after["digest"] == before["digest"]
        assert after["receipt"]["worker_epochs"]["decode-1"] == 2


async def test_a_start_that_differs_from_its_file_is_refused_by_the_fields(tmp_path):
    source, sink = FaultyVllm("p0"), FaultyVllm("d0")
    path = tmp_path / "deployment.json"
    async with running(source, sink):
        config = config_of([source], [sink])
        async with pair() as (front, _, _):
            arguments = ["manifest", "--url", front.url, "--output", str(path)]
            told = await asyncio.to_thread(CliRunner().invoke, app, arguments)
            assert told.exit_code == 0 and "wrote the manifest" in told.output
        promised = load_vllm_manifest(path)
        sink.release = "0.31.9"
        with pytest.raises(ConfigError) as refused:
            async with asyncio.timeout(5.0):
                await serve_vllm(config, silent(), manifest=promised)
        text = 'servers.decode-0.vllm is "0.31.9" and must be "0.32.0"'
        assert text in str(refused.value) and promised.digest in str(refused.value)
        assert str(refused.value).count(" must be ") == 1
        sink.release = "0.32.0"
        console = silent()
        serving = asyncio.create_task(serve_vllm(config, console, manifest=promised))
        said = f"deployment {promised.digest}, as the manifest says"
        await until(lambda: serving.done() or said in console.file.getvalue())
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        assert said in console.file.getvalue()


def test_a_file_of_the_other_engine_or_with_another_content_is_refused(tmp_path):
    path = tmp_path / "deployment.json"
    path.write_text(json.dumps({"manifest": {"engine": "vllm"}}))
    with pytest.raises(ConfigError, match="its engine is 'vllm', and another one is started"):
        load_manifest(path)
    with pytest.raises(ConfigError, match="missing required field"):
        load_vllm_manifest(path)
    path.write_text(json.dumps({"engine": "baton"}))
    with pytest.raises(ConfigError, match="its engine is 'baton', and another one is started"):
        load_vllm_manifest(path)


async def test_a_manifest_that_was_edited_is_refused(tmp_path):
    path = tmp_path / "deployment.json"
    async with pair() as (front, _, _):
        path.write_bytes(msgspec.json.encode(front.backend.manifest.record))
    load_vllm_manifest(path)
    path.write_text(path.read_text().replace("0.32.0", "0.32.1"))
    with pytest.raises(ConfigError, match="was changed: its digest is"):
        load_vllm_manifest(path)


def test_a_connector_knows_more_than_anything_else():
    info = rank_info("w", "kv_producer", 2, 0, 4, ("tcp://h:1", "tcp://h:2"))
    facts = Commanded(server={"connector": "Other"}, cache={"tp_size": 8})
    found = server_manifest(a_server(), CACHE, info, facts, None)
    assert (found.connector, found.kv_role) == ("BatonConnector", "kv_producer")
    assert found.attention_backend == info.facts.attention_backend
    assert found.checkpoint_hash == info.identity.checkpoint_hash
    abi = found.cache_abi
    assert (abi.tp_size, abi.block_size) == (2, info.layout.block_size)
    assert (abi.axis_order, abi.num_kv_heads) == (info.layout.axis_order, 2)
    assert (found.nixl, found.prefix_caching) == (UNKNOWN, "on")


class Answering:
    """The control port of a connector, that answers whoever asks who it is; over a real link."""

    def __init__(self, keys, role):
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        versions = {"nixl": "1.5.1", "baton": "0.1"}
        self.info = replace(rank_info(role, role, 1, 0, 4, (self.endpoint,)), versions=versions)
        self._ended = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(keys,), daemon=True)
        self._thread.start()
        assert self._ready.wait(5.0)

    def _run(self, keys):
        link = Link(self.endpoint, keys)
        self._ready.set()
        while not self._ended.is_set():
            for _, routing_id in link.receive(dict(link.poller.poll(20))):
                status = Status(
                    info=self.info,
                    held_blocks=0,
                    loading_blocks=0,
                    open_holds=0,
                    open_loads=0,
                    waiting_claims=0,
                    open_tickets=0,
                    counters={},
                )
                envelope = Envelope(sender_id="w", sender_epoch=7, sender_rank=0, message=status)
                link.reply(routing_id, envelope)
        link.close()

    def end(self):
        self._ended.set()
        self._thread.join(5.0)


async def test_with_our_connector_the_cache_is_known_and_a_life_with_another_one_refused(tmp_path):
    mint_keys(tmp_path)
    keys = load_member(f"{tmp_path}/{MEMBER_FILE}")
    source, sink = FaultyVllm("p0"), FaultyVllm("d0")
    doors = [Answering(keys, "kv_producer"), Answering(keys, "kv_consumer")]
    try:
        async with running(source, sink):
            config = load_config(
                None,
                [
                    *("cluster.engine=vllm", "gateway.port=0", "vllm.connector=baton"),
                    *("vllm.probe=false", "vllm.scrape_ms=20", f"vllm.key_folder={tmp_path}"),
                    f'vllm.prefill_urls=["{source.url},control={doors[0].endpoint}"]',
                    f'vllm.decode_urls=["{sink.url},control={doors[1].endpoint}"]',
                ],
            )
            async with open_vllm_front(config) as front:
                await wait_complete(front, 10.0)
                record = front.backend.manifest.record
                decode = record.manifest.servers["decode-0"]
                assert decode.cache_abi.axis_order == doors[1].info.layout.axis_order
                assert (decode.nixl, decode.baton, decode.torch) == ("1.5.1", "0.1", UNKNOWN)
                assert record.receipt.route_epoch == 1
                assert record.manifest.protocol == COMPATIBILITY.decode()
                layout = replace(doors[1].info.layout, axis_order="turned")
                doors[1].info = replace(doors[1].info, layout=layout)
                server = front.backend.servers["decode-0"]
                sink.started += 9
                await until(lambda: "manifest" in server.why_down)
                assert 'cache_abi.axis_order is "turned" and must be "test"' in server.why_down
    finally:
        for door in doors:
            door.end()


def test_a_server_that_says_nothing_is_unknown_by_name_and_never_guessed():
    server = Server("d", ServerAddress(role=Role.DECODE, url="http://h:1"))
    found = server_manifest(server, {}, None, Commanded(), None)
    assert found == ServerManifest(role="decode")
    assert server_manifest(server, {"cache_dtype": "auto"}, None, Commanded(), None) == found
    told = server_manifest(server, {"cache_dtype": "fp8"}, None, Commanded(), None)
    assert told.cache_abi.dtype_v == "fp8"


def test_what_is_started_here_is_known_from_its_command_and_its_folder():
    settings = ["cluster.engine=vllm", "cluster.prefill=1", "cluster.decode=1", "cluster.mixed=0"]
    config = load_config(None, [*settings, "vllm.prefill_tp=2"])
    words = server_command(config, "/m", Role.PREFILL, ports_of(1, 0))
    identity = ModelIdentity(model="m", checkpoint_hash="c", tokenizer_hash="t")
    found = server_manifest(a_server(), CACHE, None, commanded(words), identity)
    assert (found.connector, found.kv_role) == ("NixlConnector", "kv_producer")
    assert (found.buffer_device, found.checkpoint_hash) == ("cpu", "c")
    assert (found.cache_abi.tp_size, found.cache_abi.pp_size) == (2, 1)
    assert (found.cache_abi.block_size, found.prefix_caching) == (64, "off")


def test_of_a_command_line_the_last_word_counts_and_other_forms_are_left_unknown():
    base = ["--tensor-parallel-size", "2", "--kv-transfer-config", '{"kv_connector":"A"}']
    assert commanded([*base, "-tp", "4"]).cache["tp_size"] == 4
    assert commanded([*base, "--tensor-parallel-size=3"]).cache["tp_size"] == 3
    assert commanded(base).server == {}  # not all of what vLLM wants: it reads it otherwise
    whole = '--kv-transfer-config={"kv_connector":"B","kv_role":"kv_both"}'
    assert commanded([*base, whole]).server == {"connector": "B", "kv_role": "kv_both"}
    assert commanded([*base, whole, "--kv-transfer-config.kv_role", "x"]).server == {}
    assert commanded([]).server["connector"] == "none"
    assert commanded([*base, whole, "--config", "f.yaml"]) == Commanded()
    assert "tp_size" not in commanded(["-tp", "many"]).cache
