"""The knobs of a cluster: how many workers of which role, and where they run."""

from typing import Literal

import msgspec

from baton.core.ids import Role
from baton.errors import ConfigError


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many workers of which role, and where they run."""

    engine: Literal["baton", "vllm"] = "baton"
    """What a worker is: our own engine, or a vLLM server (section vllm)."""
    prefill: int = 1
    decode: int = 1
    mixed: int = 0
    pin_cores: bool = True
    start_timeout_s: float = 300.0
    max_restarts: int = 100
    decode_block_size: int = 0
    """Tokens of a K/V block of decode workers; 0: worker.block_size, as everywhere else."""
    prefill_pp: int = 1
    """Pipeline stages of each prefill or mixed worker (pipeline_parallel_size elsewhere): a process
    each, with neighbouring layers and their K/V."""
    decode_pp: int = 1
    """The same of each decode worker."""
    decode_kv_nbytes: int = 0
    """K/V pool of each decode worker; 0: worker.kv_nbytes, as everywhere else."""
    control: Literal["ipc", "tcp"] = "ipc"
    """How control messages travel. Over tcp they are always encrypted and authenticated."""
    control_host: str = "127.0.0.1"
    """The address that every process announces for tcp; the system chooses the ports."""

    launcher: str = "local"
    """Where workers run: local, ray (a Ray started on this host), ray://auto or ray://HOST:PORT."""
    placement: Literal["pack", "spread", "pair"] = "pack"
    """ray: few nodes, many, or each prefill worker on one node with its decode worker."""
    nodes: tuple[int, ...] = ()
    """ray: the node of each worker in start order, by a plan; empty: placement decides."""
    place_timeout_s: float = 60.0
    """ray: how long a worker may wait for a node with room."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """One role per worker, in start order."""
        return (
            (Role.PREFILL,) * self.prefill
            + (Role.DECODE,) * self.decode
            + (Role.MIXED,) * self.mixed
        )

    @property
    def worker_ids(self) -> tuple[str, ...]:
        """Names of the workers, in start order."""
        return tuple(f"{role}-{ordinal}" for ordinal, role in enumerate(self.roles))


def check_cluster(cluster: ClusterConfig) -> None:
    """Raise ConfigError where the cluster could not serve."""
    for name in ("prefill", "decode", "mixed", "max_restarts"):
        count = getattr(cluster, name)
        _require(count >= 0, f"cluster.{name}", f"{count} is negative; use 0 or more")
    split = cluster.prefill > 0 and cluster.decode > 0
    _require(
        split or (cluster.mixed > 0 and cluster.prefill == cluster.decode == 0),
        "cluster",
        f"prefill={cluster.prefill} decode={cluster.decode} mixed={cluster.mixed} cannot serve; "
        "use at least one prefill and one decode worker, or only mixed workers",
    )
    _require(not (split and cluster.mixed), "cluster", "mixed workers beside a split are not built")
    _require(
        cluster.control_host not in ("", "*", "0.0.0.0", "::"),
        "cluster.control_host",
        f"{cluster.control_host!r} is not one address; name the one at which peers reach this host",
    )
    count = len(cluster.roles)
    _require(count <= 64, "cluster", f"{count} workers; at most 64 run on one host")


def _require(condition: bool, place: str, remedy: str) -> None:
    if not condition:
        raise ConfigError(f"{place}: {remedy}")
