"""Two manifests are equal, or differ in fields that are named with both values."""

import msgspec
import pytest
from msgspec.structs import replace

from baton.core.deployment_manifest import (
    ConnectorManifest,
    DeploymentManifest,
    FallbackManifest,
    FeatureManifest,
    PoolManifest,
    manifest_differences,
)
from baton.sim.arithmetic import model_info

MODEL = model_info(block_size=16, num_layers=3, max_model_len=512)
POOLS = tuple(
    PoolManifest(role=role, num_workers=1, cache_abi=MODEL.layout) for role in ("prefill", "decode")
)
MANIFEST = DeploymentManifest(
    model=MODEL.identity,
    engine="baton",
    connector=ConnectorManifest(
        name="baton",
        direction="push",
        schedule="auto",
        backends=("shm",),
        buffer_device="cpu",
        control="ipc",
        checksum=True,
    ),
    features=FeatureManifest(
        dtype="float32", attention_backend="PlainForward/numba", prefix_caching="prompt"
    ),
    pools=POOLS,
    hosts=(("decode-1", "prefill-0"),),
    fallback=FallbackManifest(modes=("recompute",), max_attempts=3, ttft_budget_ms=1000),
    protocol="baton/1 abc",
    versions={"torch": "2.13.0"},
)
LARGER = replace(POOLS[1], cache_abi=replace(MODEL.layout, block_size=32))

CHANGES = {
    "model.checkpoint_hash": {"model": replace(MODEL.identity, checkpoint_hash="other")},
    "model.adapter_hash": {"model": replace(MODEL.identity, adapter_hash="lora")},
    "connector.direction": {"connector": replace(MANIFEST.connector, direction="pull")},
    "connector.backends": {"connector": replace(MANIFEST.connector, backends=("nixl/UCX",))},
    "features.prefix_caching": {"features": replace(MANIFEST.features, prefix_caching="none")},
    "pools.decode.cache_abi.block_size": {"pools": (POOLS[0], LARGER)},
    "pools.decode": {"pools": POOLS[:1]},
    "hosts": {"hosts": (("decode-1",), ("prefill-0",))},
    "fallback.max_attempts": {"fallback": replace(MANIFEST.fallback, max_attempts=1)},
    "versions.torch": {"versions": {"torch": "2.14.0"}},
    "versions.numba": {"versions": {"torch": "2.13.0", "numba": "0.61"}},
}


@pytest.mark.parametrize("field", CHANGES)
def test_what_differs_is_named_and_changes_the_digest(field):
    other = replace(MANIFEST, **CHANGES[field])
    assert other.digest != MANIFEST.digest
    (difference,) = manifest_differences(MANIFEST, other)
    assert difference.field == field
    assert difference.expected != difference.found
    assert str(difference).startswith(f"{field} is ")
    (back,) = manifest_differences(other, MANIFEST)
    assert (back.field, back.expected, back.found) == (
        field,
        difference.found,
        difference.expected,
    )


def test_every_field_is_compared():
    leaves = {name.partition(".")[0] for name in CHANGES}
    assert leaves | {"engine", "protocol"} == set(DeploymentManifest.__struct_fields__)
    for name in ("engine", "protocol"):
        other = replace(MANIFEST, **{name: "another"})
        assert [d.field for d in manifest_differences(MANIFEST, other)] == [name]


def test_several_differences_come_in_the_order_of_the_manifest():
    changes = {**CHANGES["versions.torch"], **CHANGES["connector.direction"], **CHANGES["hosts"]}
    names = [d.field for d in manifest_differences(MANIFEST, replace(MANIFEST, **changes))]
    assert names == ["connector.direction", "hosts", "versions.torch"]


def test_a_manifest_survives_json_and_an_unknown_field_does_not():
    text = msgspec.json.encode(MANIFEST)
    again = msgspec.json.decode(text, type=DeploymentManifest)
    assert again == MANIFEST
    assert (again.digest, manifest_differences(MANIFEST, again)) == (MANIFEST.digest, ())
    tree = msgspec.json.decode(text) | {"colour": "red"}
    with pytest.raises(msgspec.ValidationError, match="colour"):
        msgspec.convert(tree, DeploymentManifest)
