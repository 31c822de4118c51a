"""From a running deployment to its manifest and receipt, and from a file to what was promised."""

import platform
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from baton.config import BatonConfig
from baton.core.compatibility import COMPATIBILITY
from baton.core.deployment_manifest import (
    ConnectorManifest,
    DeploymentManifest,
    DeploymentReceipt,
    DeploymentRecord,
    FallbackManifest,
    FeatureManifest,
    PoolManifest,
    manifest_differences,
)
from baton.core.ids import Role
from baton.core.snapshot import WorkerInfo
from baton.core.vllm_manifest import VllmManifest, VllmRecord
from baton.errors import ConfigError
from baton.policy.fallback import Fallback
from baton.runtime.versions import carrying, versions_of

_BACKENDS = {"shm": "shm", "nixl": "nixl/UCX"}
_MAX_FILE_NBYTES = 1 << 20
_Manifest = TypeVar("_Manifest", DeploymentManifest, VllmManifest)
_RECORDS = {DeploymentManifest: DeploymentRecord, VllmManifest: VllmRecord}


class RecordKeeper:
    """Freezes the manifest once every worker has joined; what follows moves the receipt only."""

    def __init__(self, config: BatonConfig) -> None:
        self._config = config
        self._manifest: DeploymentManifest | None = None

    def record(self, workers: Iterable[WorkerInfo], route_epoch: int) -> DeploymentRecord | None:
        """What runs now; None until all workers of the configuration have joined once.

        A later life of a worker is held to the others by the fleet, so the manifest stays true.
        """
        infos = sorted(workers, key=lambda info: info.worker_id)
        if self._manifest is None:
            if len(infos) < len(self._config.cluster.roles):
                return None
            self._manifest = _manifest(self._config, infos)
        receipt = DeploymentReceipt(
            manifest_digest=self._manifest.digest,
            route_epoch=route_epoch,
            worker_epochs={info.worker_id: info.epoch for info in infos},
        )
        return DeploymentRecord(
            manifest=self._manifest, digest=self._manifest.digest, receipt=receipt
        )


def read_record(tree: object) -> DeploymentRecord | VllmRecord:
    """What a gateway shows under `deployment`, of either engine; msgspec.ValidationError if not."""
    if _engine_of(tree) == "vllm":
        return msgspec.convert(tree, VllmRecord)
    return msgspec.convert(tree, DeploymentRecord)


def _engine_of(tree: object) -> object:
    manifest = tree.get("manifest", tree) if isinstance(tree, dict) else None
    return manifest.get("engine") if isinstance(manifest, dict) else None


def load_manifest(path: Path) -> DeploymentManifest:
    """The manifest of our own engine in a file; raises ConfigError as `_load` does."""
    return _load(path, DeploymentManifest)


def load_vllm_manifest(path: Path) -> VllmManifest:
    """The manifest of vLLM servers in a file; raises ConfigError as `_load` does."""
    return _load(path, VllmManifest)


def _load(path: Path, kind: type[_Manifest]) -> _Manifest:
    """The manifest in a file that `baton manifest` wrote, or one that stands alone.

    Raises ConfigError that names the file and what is wrong with it, a digest that is not its
    content's included: a manifest that was edited is another one.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--manifest {path} cannot be read: {error.strerror}") from error
    if len(text) > _MAX_FILE_NBYTES:
        raise ConfigError(f"--manifest {path} has {len(text)} bytes, which no manifest has")
    try:
        tree = msgspec.json.decode(text)
        if (_engine_of(tree) == "vllm") is not (kind is VllmManifest):
            raise ConfigError(f"its engine is {_engine_of(tree)!r}, and another one is started")
        if not isinstance(tree, dict) or "manifest" not in tree:
            return msgspec.convert(tree, kind)
        record = msgspec.convert(tree, _RECORDS[kind])
    except (msgspec.MsgspecError, ConfigError, RecursionError) as error:
        raise ConfigError(
            f"--manifest {path} is no deployment manifest: {error}; write one with "
            "`baton manifest --output FILE` while the deployment runs"
        ) from error
    if record.digest != record.manifest.digest:
        raise ConfigError(
            f"--manifest {path} was changed: its digest is {record.digest}, its content's is "
            f"{record.manifest.digest}; write it again with `baton manifest --output FILE`"
        )
    manifest: _Manifest = record.manifest
    return manifest


def check_manifest(expected: _Manifest, found: _Manifest) -> None:
    """Raise ConfigError with every field in which what runs differs from what was promised."""
    differences = manifest_differences(expected, found)
    if differences:
        lines = "; ".join(str(difference) for difference in differences)
        raise ConfigError(
            f"this deployment is not the one of the manifest (digest {expected.digest}): {lines}. "
            "Set it up as before, or test it anew and write its own with `baton manifest`"
        )


def _manifest(config: BatonConfig, infos: list[WorkerInfo]) -> DeploymentManifest:
    model, transfer, router = infos[0].model, config.transfer, config.router
    return DeploymentManifest(
        model=model.identity,
        engine="baton",
        connector=ConnectorManifest(
            name="baton",
            direction=transfer.direction,
            schedule=transfer.schedule,
            backends=(_BACKENDS[transfer.data_plane],),
            buffer_device=model.device,
            control=config.cluster.control,
            checksum=transfer.checksum,
        ),
        features=FeatureManifest(
            dtype=model.dtype,
            attention_backend=model.attention_backend,
            prefix_caching=config.cache.milestone,
            deterministic=model.deterministic,
        ),
        pools=tuple(_pools(infos)),
        hosts=_hosts(infos),
        fallback=FallbackManifest(
            modes=(Fallback.REROUTE, Fallback.RECOMPUTE, Fallback.FAIL),
            max_attempts=router.max_attempts,
            ttft_budget_ms=router.ttft_budget_ms,
        ),
        protocol=COMPATIBILITY.decode(),
        versions={
            "python": platform.python_version(),
            **dict(infos[0].versions),
            **versions_of(carrying(config)),
        },
    )


def _pools(infos: list[WorkerInfo]) -> Iterable[PoolManifest]:
    for role in Role:
        layouts = [info.model.layout for info in infos if info.role is role]
        if layouts:  # all of one role have the same, as the fleet saw to
            yield PoolManifest(role=role, num_workers=len(layouts), cache_abi=layouts[0])


def _hosts(infos: list[WorkerInfo]) -> tuple[tuple[str, ...], ...]:
    groups: dict[str, list[str]] = {}
    for info in infos:
        scheme, _, place = info.endpoint.partition("://")
        host = place.rpartition(":")[0] if scheme == "tcp" else ""
        groups.setdefault(host, []).append(info.worker_id)
    return tuple(sorted(tuple(group) for group in groups.values()))
