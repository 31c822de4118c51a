"""What to simulate: the trace and what is done to it, the deployment, and how it is judged."""

import math
from pathlib import Path
from typing import NamedTuple

import msgspec

from baton.config import BatonConfig, load_config
from baton.errors import ConfigError
from baton.goodput.slo import SLOTargets
from baton.policy.service_profile import decode_profile
from baton.sim.fast.deployment import Failure
from baton.sim.replay.costs import Costs
from baton.sim.replay.setup import ReplaySetup
from baton.sim.simulate.hardware import MachineCosts, machine
from baton.sim.simulate.predicted import Predicted, predicted_costs

HARDWARE_DEFAULTS = (
    "worker.batch_policy=sarathi",
    "worker.max_batch_tokens=1048576",
    "worker.kv_nbytes=400000000000",
    "worker.max_num_seqs=4096",
    "worker.max_reservations=16384",
    "transfer.chunk_nbytes=1099511627776",
    "transfer.credit_nbytes=1099511627776",
    "transfer.checksum=false",
    "transfer.retry_ms=5000",
    "transfer.lease_ms=120000",
    "transfer.capability_ttl_ms=120000",
    "cache.copy_timeout_ms=120000",
    "cache.max_copies=256",
    "router.max_waiting_requests=1000000",
    "router.max_pending_tokens=4000000000",
    "router.ttft_budget_ms=36000000",
    "router.attempt_timeout_ms=36000000",
    "router.batch_timeout_ms=36000000",
    "router.decode_stall_ms=36000000",
    "router.heartbeat_ms=1000",
)
"""Of a named machine: one whole prompt in a step, one chunk for each layer group, what 8 x 80 GB
leave beside the weights, and the bounds that refuse work on a small machine out of the way.
`--config` and `--set` win over them."""
PREDICTED_DEFAULTS = (
    *HARDWARE_DEFAULTS,
    "worker.batch_policy=sarathi_serve",
    "worker.max_batch_tokens=8192",
    "worker.max_num_seqs=1024",
)
"""Of a model on a system: chunks beside decodes within vLLM's usual budget for such machines."""


class TraceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests, and when."""

    path: Path
    format: str = "auto"
    num: int | None = None
    """Only the first so many of the file."""
    tick_ms: int = 0
    """Spread arrivals that share a time stamp over so many milliseconds; 0: leave them."""
    speed: float = 1.0
    """Arrivals come so many times faster."""
    max_output: int | None = None
    """Cut longer answers; 1 leaves a decode side next to nothing to do."""
    whole_blocks: bool = False
    """Prompts end with the last block that has a hash id, and one token more."""
    concurrency: int = 0
    """Requests that are open at once, whatever their arrivals say; 0: by arrival."""

    def __post_init__(self) -> None:
        if not 0 < self.speed < math.inf:
            raise ConfigError(f"--speed {self.speed:g}: a finite number above 0")
        if self.tick_ms < 0:
            raise ConfigError(f"--tick {self.tick_ms}: milliseconds, 0 or more")
        if self.concurrency < 0:
            raise ConfigError(f"--closed-loop {self.concurrency}: requests at once, 1 or more")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a simulation depends on; equal plans give equal results."""

    trace: TraceOptions
    setup: ReplaySetup
    hardware: str
    """Name of the machine, or the profile's model and digest."""
    config_digest: str
    max_model_len: int = 0
    """0: as long as the longest request."""
    targets: SLOTargets | None = None
    is_fast: bool = False
    """By the fast host instead of the production nodes."""
    failures: tuple[Failure, ...] = ()
    """Workers that die; only the fast host lets them."""
    warnings: tuple[str, ...] = ()
    """Of the machine, for the report."""


def read_config(
    config: Path | None, overrides: list[str], *, defaults: tuple[str, ...] = ()
) -> BatonConfig:
    """File, then flags; both stand on the defaults of the machine, if it has any.

    A file is read alone first, so that an error in it names the file; only then its keys are laid
    over the defaults.
    """
    if not defaults:
        return load_config(config, overrides)
    if config is None:
        return load_config(None, [*defaults, *overrides])
    given = load_config(config, overrides)
    standing, plain = load_config(None, list(defaults)), BatonConfig()
    changes = {}
    for section in plain.__struct_fields__:
        ours, base = getattr(given, section), getattr(plain, section)
        moved = {
            name: getattr(ours, name)
            for name in ours.__struct_fields__
            if getattr(ours, name) != getattr(base, name)
        }
        changes[section] = msgspec.structs.replace(getattr(standing, section), **moved)
    return msgspec.structs.replace(standing, **changes)


class Simulated(NamedTuple):
    """The machine to simulate."""

    costs: Costs
    name: str
    defaults: tuple[str, ...] = ()
    """Configuration that it stands on."""
    kv_tokens: int = 0
    """K/V that a worker holds; 0: what `worker.kv_nbytes` buys."""
    decode_kv_tokens: int = 0
    """K/V that a decode worker holds, if not the same."""
    warnings: tuple[str, ...] = ()


def costs_of(
    hardware: str | None,
    profile: Path | None,
    mfu: float | None,
    bandwidth: float | None,
    predicted: Predicted | None = None,
) -> Simulated:
    """A named machine, a measured one, or a model on a system."""
    if sum(one is not None for one in (hardware, profile, predicted)) != 1:
        raise ConfigError(
            "name one machine: --model and --system, --hardware NAME, or --profile FILE measured "
            "by `baton profile`"
        )
    if predicted is not None:
        if mfu is not None:
            raise ConfigError("--mfu belongs to --hardware; a predictor has its own efficiencies")
        found = predicted_costs(predicted, bandwidth)
        warnings = (found.warning,) if found.warning else ()
        return Simulated(
            found.costs,
            found.name,
            PREDICTED_DEFAULTS,
            found.kv_tokens,
            found.decode_kv_tokens,
            warnings,
        )
    if hardware is not None:
        chosen = machine(hardware, mfu=mfu, link_gbytes_per_s=bandwidth)
        text = f"{chosen.name}, MFU {chosen.mfu:g}, link {chosen.link_gbytes_per_s:g} GB/s"
        return Simulated(MachineCosts(chosen), text, HARDWARE_DEFAULTS)
    assert profile is not None
    for flag, value in (("--mfu", mfu), ("--bandwidth", bandwidth)):
        if value is not None:
            raise ConfigError(f"{flag} belongs to --hardware; a profile has measured it")
    try:
        data = profile.read_bytes()
    except OSError as error:
        raise ConfigError(f"--profile {profile}: cannot be read: {error.strerror}") from error
    measured = decode_profile(data, str(profile))
    name = f"{measured.subject.identity.model}, profile of {measured.measured_at}"
    return Simulated(measured, name)


def block_counts(blocks: int | None, cache_tokens: int | None, block_size: int) -> int:
    """K/V blocks of each worker that keeps history; 0: what `worker.kv_nbytes` buys."""
    if blocks is not None and cache_tokens is not None:
        raise ConfigError("--blocks and --cache-tokens say the same; give one of them")
    if blocks is not None and blocks < 2:
        raise ConfigError(f"--blocks {blocks}: a worker needs at least 2")
    if cache_tokens is None:
        return blocks or 0
    if cache_tokens < 2 * block_size:
        raise ConfigError(
            f"--cache-tokens {cache_tokens}: less than two blocks of {block_size} tokens"
        )
    return cache_tokens // block_size
