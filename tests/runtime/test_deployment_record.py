"""`baton manifest` writes what runs, and `serve --manifest` holds a start to it."""

import asyncio
import json

import msgspec
import pytest
from real_deployment import serving
from rich.console import Console
from tests.nodes.joining import info
from typer.testing import CliRunner

from baton.cli import app
from baton.config import load_config
from baton.core.deployment_manifest import DeploymentManifest
from baton.core.ids import Role
from baton.core.snapshot import WorkerInfo
from baton.errors import ConfigError
from baton.runtime import versions
from baton.runtime.deployment_record import RecordKeeper, check_manifest, load_manifest
from baton.runtime.serve import serve

CONFIG = load_config(None, ['transfer.data_plane="nixl"', 'cluster.control="tcp"'])


def workers(**changes: object) -> list[WorkerInfo]:
    """Both of a split, on two hosts."""
    return [
        info("prefill-0", Role.PREFILL, endpoint="tcp://10.0.0.1:7001", **changes),
        info("decode-1", endpoint="tcp://10.0.0.2:7001", **changes),
    ]


def manifest(**changes: object) -> DeploymentManifest:
    """Of those two."""
    record = RecordKeeper(CONFIG).record(workers(**changes), 3)
    assert record is not None
    return record.manifest


def test_the_manifest_is_frozen_once_every_worker_has_joined_and_the_receipt_moves():
    keeper = RecordKeeper(CONFIG)
    both = workers()
    assert keeper.record(both[:1], 1) is None
    first = keeper.record(both, 2)
    assert first is not None
    assert first.manifest.hosts == (("decode-1",), ("prefill-0",))
    assert [(pool.role, pool.num_workers) for pool in first.manifest.pools] == [
        ("prefill", 1),
        ("decode", 1),
    ]
    assert first.manifest.connector.backends == ("nixl/UCX",)
    lost = keeper.record(both[:1], 5)
    assert lost is not None
    assert (lost.digest, lost.manifest) == (first.digest, first.manifest)
    assert (lost.receipt.route_epoch, lost.receipt.worker_epochs) == (5, {"prefill-0": 1})
    assert lost.receipt.manifest_digest == first.digest


def test_only_what_carries_this_deployment_is_named_whatever_else_is_installed(monkeypatch):
    monkeypatch.setattr(versions, "_version", lambda name: "1.0")
    assert {"nixl-cu12", "msgspec"} <= set(manifest().versions) and "ray" not in manifest().versions
    local = load_config(None, ['transfer.data_plane="shm"'])
    record = RecordKeeper(local).record(workers(), 1)
    assert record is not None and not {"nixl-cu12", "ray"} & set(record.manifest.versions)
    over_ray = load_config(None, ['transfer.data_plane="shm"', 'cluster.launcher="ray"'])
    record = RecordKeeper(over_ray).record(workers(), 1)
    assert record is not None and record.manifest.versions["ray"] == "1.0"


def test_addresses_and_lives_are_not_of_the_manifest():
    moved = [
        msgspec.structs.replace(one, epoch=4, endpoint=one.endpoint.replace("10.0", "10.9"))
        for one in workers()
    ]
    record = RecordKeeper(CONFIG).record(moved, 9)
    assert record is not None
    assert record.manifest == manifest()


def test_another_release_is_refused_by_name():
    expected = manifest(versions=(("torch", "2.13.0"),))
    check_manifest(expected, expected)
    with pytest.raises(ConfigError, match=r'versions\.torch is "2\.14\.0" and must be "2\.13\.0"'):
        check_manifest(expected, manifest(versions=(("torch", "2.14.0"),)))


def test_files_that_are_no_manifest_are_refused_by_what_is_wrong(tmp_path):
    path = tmp_path / "deployment.json"
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_manifest(path)
    for text in (b"", b"[]", b'{"manifest": 3}', b"{" * 5000, b'{"model": {}}', b"\xff"):
        path.write_bytes(text)
        with pytest.raises(ConfigError, match=r"deployment\.json is no deployment manifest"):
            load_manifest(path)
    path.write_bytes(b" " * (2 << 20))
    with pytest.raises(ConfigError, match="2097152 bytes"):
        load_manifest(path)


def test_a_manifest_that_was_edited_is_refused_and_a_bare_one_is_taken(tmp_path):
    record = RecordKeeper(CONFIG).record(workers(), 1)
    tree = msgspec.to_builtins(record)
    path = tmp_path / "deployment.json"
    path.write_text(json.dumps(tree))
    assert load_manifest(path) == manifest()
    path.write_text(json.dumps(tree["manifest"]))
    assert load_manifest(path) == manifest()
    tree["manifest"]["connector"]["direction"] = "pull"
    path.write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match="was changed: its digest is"):
        load_manifest(path)


@pytest.mark.slow
async def test_a_deployment_is_written_and_a_start_that_differs_is_refused(tmp_path):
    path = tmp_path / "deployment.json"
    async with serving() as served:
        arguments = ["manifest", "--url", str(served.client.base_url), "--output", str(path)]
        result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        assert result.exit_code == 0, result.output
        shown = (await served.client.get("/version")).json()["deployment"]
    expected = load_manifest(path)
    assert shown["digest"] == expected.digest in result.output
    assert shown["receipt"]["worker_epochs"] == {"prefill-0": 1, "decode-1": 1}
    assert expected.features.attention_backend.startswith("PlainForward/")
    assert {"torch", "python", "kvbaton"} <= set(expected.versions)

    pulling = load_config(
        None, ['model.name="tiny"', "gateway.port=0", 'transfer.direction="pull"']
    )
    refusal = r'connector\.direction is "pull" and must be "push"'
    with pytest.raises(ConfigError, match=refusal):
        await serve(pulling, Console(quiet=True), None, expected)
