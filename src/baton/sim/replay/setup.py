"""What a replay runs on: roles, configurations, memory, and the delays around the workers."""

import msgspec

from baton.config import BatonConfig, CacheConfig, RouterConfig, TransferConfig, WorkerConfig
from baton.core.ids import Role
from baton.core.layout import KVLayout, ModelInfo
from baton.errors import ConfigError
from baton.policy.service_profile import ServiceDelays
from baton.sim.replay.costs import Costs


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """What lies between the parts of a deployment, in microseconds.

    The defaults were measured nowhere; `baton profile` measures them.
    """

    control_us: int = 150
    """One message between two processes."""
    gateway_in_us: int = 500
    """From the client's request to the router: HTTP, validation, tokens."""
    gateway_out_us: int = 300
    """From the router's tokens to the client's chunk."""

    @classmethod
    def of(cls, profile: Costs) -> "Delays":
        """As a profile measured them; the constants above where it did not."""
        found = getattr(profile, "delays", None)
        if not isinstance(found, ServiceDelays):
            return cls()
        return cls(
            control_us=round(found.control_us),
            gateway_in_us=round(found.gateway_in_us),
            gateway_out_us=round(found.gateway_out_us),
        )


class TierSpeeds(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes per microsecond of copies to or from a tier below memory, measured on no machine.

    Stand-ins for one channel of DRAM and one drive; give your own.
    """

    host_bytes_per_us: float = 8_000.0
    disk_bytes_per_us: float = 1_000.0


class ReplaySetup(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment to replay a workload on; equal setups and workloads give equal records."""

    roles: tuple[Role, ...] = (Role.PREFILL, Role.DECODE)
    worker: WorkerConfig = WorkerConfig()
    transfer: TransferConfig = TransferConfig()
    router: RouterConfig = RouterConfig()
    cache: CacheConfig = CacheConfig()
    delays: Delays = Delays()
    tier_speeds: TierSpeeds = TierSpeeds()
    max_model_len: int = 8192
    decode_block_size: int = 0
    """Tokens of a block of decode workers; 0: `worker.block_size`."""
    decode_kv_nbytes: int = 0
    """K/V pool of a decode worker; 0: `worker.kv_nbytes`."""
    vocab_size: int = 32_000
    """Prompts are drawn from so many tokens."""
    num_blocks: int = 0
    """K/V blocks of each worker; 0 takes what `worker.kv_nbytes` buys of the profiled layout."""
    num_decode_blocks: int = 0
    """K/V blocks of each decode worker; 0: as many as every other one."""
    shares_memory: bool = True
    """The workers are neighbours on one machine: a busy one slows the others down."""
    seed: int = 0

    def __post_init__(self) -> None:
        roles = set(self.roles)
        if roles != {Role.MIXED} and roles != {Role.PREFILL, Role.DECODE}:
            raise ConfigError(
                f"setup.roles is {[str(role) for role in self.roles]}; use at least one prefill "
                "and one decode worker, or only mixed workers"
            )
        for name in ("max_model_len", "vocab_size"):
            if getattr(self, name) < 2:
                raise ConfigError(f"setup.{name} is {getattr(self, name)}; it must be at least 2")
        for name in ("num_blocks", "num_decode_blocks"):
            if getattr(self, name) < 0:
                raise ConfigError(f"setup.{name} is {getattr(self, name)}; use 0 or more")
        for name in self.tier_speeds.__struct_fields__:
            if not getattr(self.tier_speeds, name) > 0:
                raise ConfigError(f"setup.tier_speeds.{name} is not positive; give a rate")
        for name in self.delays.__struct_fields__:
            if getattr(self.delays, name) < 0:
                raise ConfigError(f"setup.delays.{name} is negative; use 0 or more")

    @classmethod
    def from_config(
        cls, config: BatonConfig, *, max_model_len: int, seed: int = 0
    ) -> "ReplaySetup":
        """What this configuration would serve."""
        return cls(
            roles=config.cluster.roles,
            worker=config.worker,
            transfer=config.transfer,
            router=config.router,
            cache=config.cache,
            decode_block_size=config.cluster.decode_block_size,
            decode_kv_nbytes=config.cluster.decode_kv_nbytes,
            max_model_len=max_model_len,
            seed=seed,
        )

    @property
    def worker_ids(self) -> tuple[str, ...]:
        """Ids of the workers, in start order."""
        return tuple(f"{role}-{number}" for number, role in enumerate(self.roles))

    def layout(self, profile: Costs, role: Role = Role.PREFILL) -> KVLayout:
        """The profiled layout in a role's blocks; their size costs a step next to nothing."""
        layout = profile.subject.shape.layout
        own = self.decode_block_size if role is Role.DECODE else 0
        return msgspec.structs.replace(layout, block_size=own or self.worker.block_size)

    def model(self, profile: Costs, role: Role = Role.PREFILL) -> ModelInfo:
        """The profiled model as a worker announces it. It never ends a text by itself."""
        return ModelInfo(
            name=profile.subject.identity.model,
            max_model_len=self.max_model_len,
            vocab_size=self.vocab_size,
            eos_token_ids=(),
            identity=profile.subject.identity,
            layout=self.layout(profile, role),
            dtype=profile.subject.dtype,
            deterministic=profile.subject.kernels.deterministic,
        )

    def pool_blocks(self, profile: Costs, role: Role = Role.PREFILL) -> int:
        """Blocks of a worker's pool, bounded as a real worker bounds them."""
        own = self.num_decode_blocks if role is Role.DECODE else 0
        if own or self.num_blocks:
            return own or self.num_blocks
        layout = self.layout(profile, role)
        most = self.worker.max_admitted + self.worker.max_reservations
        usable = (layout.num_blocks(self.max_model_len) + 1) * most
        decode_nbytes = self.decode_kv_nbytes if role is Role.DECODE else 0
        kv_nbytes = decode_nbytes or self.worker.kv_nbytes
        blocks = min(kv_nbytes // layout.bytes_per_block, usable)
        if blocks < 2:
            field = "cluster.decode_kv_nbytes" if decode_nbytes else "worker.kv_nbytes"
            raise ConfigError(
                f"{field} {kv_nbytes} holds {blocks} blocks of "
                f"{layout.bytes_per_block} bytes; raise it to at least {2 * layout.bytes_per_block}"
            )
        return blocks
