"""Every knob with its default. TOML file, then `--set a.b=c`; an unknown key is an error."""

import re
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from baton.core.cache import Milestone
from baton.core.cluster_settings import ClusterConfig, check_cluster
from baton.core.digest import digest
from baton.core.ids import Direction, PromptOrder, Role
from baton.core.knob_bounds import check_bounds, check_stages
from baton.core.knobs import apply_override, convert_tree, require_finite
from baton.core.telemetry_settings import TelemetrySettings
from baton.core.vllm_settings import VllmSettings, check_vllm
from baton.errors import ConfigError

MIB = 1 << 20
_HEADER_NAME = re.compile(r"[a-z0-9][a-z0-9!#$%&'*+.^_`|~-]{0,127}")
_CLIENTS_HEADERS = ("authorization", "content-type", "content-length", "host", "x-request-id")
"""Every client sends these for another purpose."""
_LARGE_MEANS = {
    "router.balancing_threshold": "never copies unless nothing is held locally",
}


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the sections: frozen, and unknown keys are refused."""


class ModelConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model, in which representation."""

    name: str = "smollm2"
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "cpu"
    deterministic: bool = True
    max_model_len: int = 0
    """0 keeps the model's own limit, bounded by what the K/V pool can hold."""
    self_test: bool = True


class WorkerConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One worker's memory and batch bounds."""

    threads: int = 1
    """Cores of one engine. More than one needs cores that nothing else uses: every step waits for
    the slowest thread. No bit of a deterministic model depends on it."""
    block_size: int = 16
    kv_nbytes: int = 512 * MIB
    """K/V pool per worker, in shared memory; capped at what its sequences could ever use."""
    batch_policy: Literal[
        "static",
        "orca",
        "sarathi",
        "sarathi_serve",
        "token_budget",
        "prefill_first",
        "decode_first",
        "phase_pure",
        "whole_hybrid",
    ] = "sarathi_serve"
    prompt_order: PromptOrder = PromptOrder.FCFS
    """Which waiting prompt a phase_pure worker starts next: fcfs, sjf or ljf."""
    max_batch_tokens: int = 512
    """Token budget of one step; whole-prompt policies run a longer prompt alone."""
    max_num_seqs: int = 32
    age_override_ms: int = 0
    """What has waited for so long is neither passed over nor preempted any more; 0: no limit."""
    max_passed_over: int = 0
    """Steps that may run one phase while a sequence of the other waits; 0: no limit."""
    max_preemptions: int = 4
    """How often one sequence may lose its blocks while another one could; 0: no limit."""
    max_reservations: int = 64
    growth_tokens: int = 256
    """Decode rows reserved beyond the prompt; more are allocated as they are needed."""

    @property
    def max_admitted(self) -> int:
        """Requests that may decode here at once; a static batch needs its successor to gather."""
        return self.max_num_seqs * (2 if self.batch_policy == "static" else 1)


class TransferConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The handoff: who moves, when, in which pieces, and for how long state is held."""

    direction: Direction = Direction.PUSH
    schedule: Literal["auto", "layer", "request", "aggregated"] = "auto"
    """When bytes move: as each layer is ready; after the prompt, in chunks; or after the prompt in
    as few orders as credit_nbytes allows. auto: what costs the least by measured constants."""
    chunk_nbytes: int = 4 * MIB
    credit_nbytes: int = 32 * MIB
    checksum: bool = True
    lease_ms: int = 10_000
    retry_ms: int = 500
    capability_ttl_ms: int = 10_000
    """How long after its issue a transfer capability may be presented."""
    staging: Literal["auto", "always"] = "auto"
    data_plane: Literal["shm", "nixl", "auto"] = "shm"
    """shared memory of one host; NIXL (extra `nixl`), past it too; auto: nixl where installed."""
    move_timeout_ms: int = 5_000
    """nixl: a transfer without progress for so long fails; its blocks stay in quarantine."""


class CacheConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The distributed K/V pool: what is kept, where it may lie, and who is told of it."""

    milestone: Milestone = Milestone.PROMPT
    """none, prefill, prompt, decode or bidirectional; see docs/pool.md. Up to prompt, what was
    reused is bit-equal to what would have been recomputed."""
    eviction: Literal["lru", "lfu", "length_aware", "cost_aware"] = "lru"
    host_nbytes: int = 0
    """DRAM tier of each worker, in shared memory; 0: none."""
    disk_dir: str = ""
    """Directory of the disk tier, a folder per worker within it; "": none. Below a host tier it is
    written only when that runs short, so a restart finds only what had gone down by then."""
    disk_nbytes: int = 0
    """Most bytes of files that each worker keeps in its folder."""
    disk_driver: Literal["files", "nixl"] = "files"
    """What moves a block between memory and its file: calls of the kernel, or NIXL's POSIX backend
    (extra `nixl`). The files are the same."""
    announce: bool = True
    """Workers tell the router which blocks they hold; routes by cache need it."""
    max_copies: int = 16
    """Copies of cached blocks between workers that may be under way at once; 0: none."""
    copy_timeout_ms: int = 10_000
    """A copy that is not published by then is given up, and its request recomputes."""
    replicate_hits: int = 0
    """Copy a prefix to one more worker after so many recent hits on its owners; 0: never."""
    max_replicas: int = 2
    """Owners that a hot prefix may have by replication."""


class RouterConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Routes, admission, deadlines and fallbacks."""

    policy: Literal[
        "shortest_queue",
        "distserve",
        "memserve",
        "conductor",
        "pair",
        "random",
        "load_balance",
        "local_cache_aware",
        "global_cache_aware",
    ] = "shortest_queue"
    """Which workers serve a request; see docs/routing.md."""
    balancing_threshold: float = 2.0
    """conductor, global_cache_aware: a copy of the best prefix is priced where it is longer than
    the local one by more than this ratio."""
    admission: Literal["none", "early", "predicted"] = "none"
    """Refuse before any compute by the load of both sides, now or when the prefill would end."""
    ttft_slo_ms: int = 0
    """Target of requests that bring none of their own; 0: none."""
    tpot_slo_ms: int = 0
    """The same for each further token; 0: none."""
    fairness: Literal["fcfs", "tenants"] = "fcfs"
    """Whose request is routed next: the oldest, or the least served tenant's oldest."""
    max_attempts: int = 3
    ttft_budget_ms: int = 120_000
    attempt_timeout_ms: int = 60_000
    max_waiting_requests: int = 512
    max_pending_tokens: int = 262_144
    heartbeat_ms: int = 200
    worker_timeout_ms: int = 5_000
    batch_timeout_ms: int = 120_000
    """A worker whose engine has run one batch for longer is ended and starts again."""
    decode_stall_ms: int = 60_000
    """A stream without a new token for so long starts another attempt."""


class GatewayConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP edge."""

    host: str = "127.0.0.1"
    port: int = 8000
    max_body_nbytes: int = 8 * MIB
    body_timeout_s: float = 30.0
    stream_stall_s: float = 60.0
    max_n: int = 16
    max_prompts: int = 64
    tenants: Literal["none", "api_key", "header"] = "none"
    """Who shares cached prefixes: everybody; whoever sends the same bearer token; or whoever a
    trusted proxy in front names in tenant_header."""
    tenant_header: str = "x-baton-tenant"
    """Believed with tenants=header only, so the proxy must set or remove it on every request."""
    tenant_key_file: str = ""
    """Secret of 16 bytes or more that keys the digests of tenants; "": drawn at start, and history
    that outlives the gateway is found by nobody then."""
    allow_drain: bool = False
    """POST /workers/drain may remove workers: for operators, as allow_cache_clear."""
    allow_cache_clear: bool = False
    """POST /cache/clear may void all history: for operators, not where clients can reach it."""


class BatonConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration of one deployment."""

    model: ModelConfig = ModelConfig()
    cluster: ClusterConfig = ClusterConfig()
    worker: WorkerConfig = WorkerConfig()
    transfer: TransferConfig = TransferConfig()
    cache: CacheConfig = CacheConfig()
    router: RouterConfig = RouterConfig()
    gateway: GatewayConfig = GatewayConfig()
    telemetry: TelemetrySettings = TelemetrySettings()
    vllm: VllmSettings = VllmSettings()

    def block_size_of(self, role: Role) -> int:
        """Tokens of a K/V block of a worker of this role."""
        own = self.cluster.decode_block_size if role is Role.DECODE else 0
        return own or self.worker.block_size

    def kv_nbytes_of(self, role: Role) -> int:
        """K/V pool of a worker of this role."""
        own = self.cluster.decode_kv_nbytes if role is Role.DECODE else 0
        return own or self.worker.kv_nbytes

    def pp_size_of(self, role: Role) -> int:
        """Pipeline stages of a worker of this role."""
        return self.cluster.decode_pp if role is Role.DECODE else self.cluster.prefill_pp

    def pp_field_of(self, role: Role) -> str:
        """The name of the knob that says so."""
        return "cluster.decode_pp" if role is Role.DECODE else "cluster.prefill_pp"

    @property
    def digest(self) -> str:
        """Digest printed at start, so two runs can be told apart."""
        return digest(self)


def load_config(path: Path | None = None, overrides: list[str] | None = None) -> BatonConfig:
    """Read `path` (TOML), apply `section.key=value` overrides, validate, and return the result.

    Raises ConfigError naming the file, the key and the remedy.
    """
    tree: dict[str, Any] = {}
    place = "command line"
    if path is not None:
        place = str(path)
        try:
            tree = tomllib.loads(path.read_text())
        except OSError as error:
            raise ConfigError(f"{path}: cannot read the configuration: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not valid TOML: {error}") from error
        convert_tree(tree, BatonConfig, place)
    for override in overrides or []:
        apply_override(tree, override)
        place = f"--set {override}"
        convert_tree(tree, BatonConfig, place)
    config = convert_tree(tree, BatonConfig, place)
    _validate(config)
    return config


def _validate(config: BatonConfig) -> None:
    require_finite(config, _LARGE_MEANS)
    check_cluster(config.cluster)
    check_vllm(config.vllm, config.cluster.engine == "vllm")
    check_bounds(config)
    worker = config.worker
    _require_block_size("worker.block_size", worker.block_size)
    if config.cluster.decode_block_size:
        _require_block_size("cluster.decode_block_size", config.cluster.decode_block_size)
    _require(
        worker.prompt_order is PromptOrder.FCFS or worker.batch_policy == "phase_pure",
        "worker.prompt_order",
        f"{worker.prompt_order} orders the prompts of worker.batch_policy phase_pure only, "
        f"not of {worker.batch_policy}",
    )
    cache = config.cache
    sizes = config.block_size_of(Role.DECODE), worker.block_size
    _require(
        cache.milestone is not Milestone.BIDIRECTIONAL
        or sizes[0] == sizes[1]
        or Role.DECODE not in config.cluster.roles,
        "cache.milestone",
        f"bidirectional returns nothing between cluster.decode_block_size {sizes[0]} and "
        f"worker.block_size {sizes[1]}; make them equal, or use cache.milestone=decode",
    )
    _validate_stages(config)
    _require(
        bool(cache.disk_dir) == bool(cache.disk_nbytes),
        "cache.disk_dir",
        f"{cache.disk_dir!r} with cache.disk_nbytes {cache.disk_nbytes}; set both or neither",
    )
    transfer = config.transfer
    _require(
        transfer.credit_nbytes >= transfer.chunk_nbytes,
        "transfer.credit_nbytes",
        f"{transfer.credit_nbytes} is less than transfer.chunk_nbytes {transfer.chunk_nbytes}; "
        "a chunk could never take its credit",
    )
    _require(
        transfer.retry_ms < transfer.lease_ms,
        "transfer.retry_ms",
        f"{transfer.retry_ms} is not below transfer.lease_ms {transfer.lease_ms}",
    )
    _require(
        transfer.capability_ttl_ms >= transfer.retry_ms,
        "transfer.capability_ttl_ms",
        f"{transfer.capability_ttl_ms} is below transfer.retry_ms {transfer.retry_ms}; "
        "a repeated capability would always have expired",
    )
    _validate_gateway(config.gateway)


def _validate_stages(config: BatonConfig) -> None:
    """What workers of several pipeline stages do not do."""
    cluster = config.cluster
    _require(
        config.cache.milestone is not Milestone.BIDIRECTIONAL
        or cluster.prefill_pp == cluster.decode_pp
        or Role.DECODE not in cluster.roles,
        "cache.milestone",
        f"bidirectional returns nothing between cluster.decode_pp {cluster.decode_pp} and "
        f"cluster.prefill_pp {cluster.prefill_pp}; make them equal, or use cache.milestone=decode",
    )
    for role in dict.fromkeys(cluster.roles):
        check_stages(config, config.pp_field_of(role), config.pp_size_of(role))


def _validate_gateway(gateway: GatewayConfig) -> None:
    port, header = gateway.port, gateway.tenant_header
    remedy = f"{gateway.host!r} is no address; use 127.0.0.1, or 0.0.0.0 for every interface"
    _require(bool(gateway.host.strip()), "gateway.host", remedy)
    _require(0 <= port <= 65535, "gateway.port", f"{port} is not between 0 and 65535")
    _require(
        bool(_HEADER_NAME.fullmatch(header)) and header not in _CLIENTS_HEADERS,
        "gateway.tenant_header",
        f"{header!r} cannot carry a tenant; use a lower-case name of its own, as x-baton-tenant",
    )


def _require_block_size(name: str, size: int) -> None:
    fits = 1 <= size <= 256 and size & (size - 1) == 0
    _require(fits, name, f"{size} is not a power of two between 1 and 256")


def _require(condition: bool, place: str, remedy: str) -> None:
    if not condition:
        raise ConfigError(f"{place}: {remedy}")
