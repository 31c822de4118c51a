"""The keys of `kv_connector_extra_config`, checked by name."""

from typing import Any

import msgspec

from baton.errors import ConfigError


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator sets for one vLLM server."""

    key_file: str
    """`member.json` of the deployment, see `baton.integrations.vllm.keys`."""
    worker_id: str
    """Unique within the deployment; a restarted server keeps it."""
    host: str = "127.0.0.1"
    """Address under which peers and the gateway reach this server's control port."""
    port: int
    """First control port; tensor-parallel rank r listens on port + r."""
    data_plane: str = "nixl"
    lease_ms: int = 10_000
    """A claimed handoff whose other side is silent for so long is given up."""
    retry_ms: int = 200
    pair_timeout_ms: int = 5_000
    """So long a destination waits for a source that does not answer at all."""
    chunk_nbytes: int = 4 << 20
    credit_nbytes: int = 32 << 20
    """Bytes of one handoff that may be on their way at once."""
    move_timeout_ms: int = 5_000
    max_deadline_ms: int = 600_000
    """Tickets that live longer are refused."""

    def __post_init__(self) -> None:
        if self.data_plane != "nixl":
            raise ConfigError(
                f"kv_connector_extra_config.data_plane is {self.data_plane!r}; use 'nixl'"
            )
        if not 1 <= self.port <= 65_535:
            raise ConfigError(
                f"kv_connector_extra_config.port is {self.port}; use a port of 1 to 65535"
            )
        for name in ("lease_ms", "retry_ms", "pair_timeout_ms", "chunk_nbytes", "credit_nbytes"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"kv_connector_extra_config.{name} is {getattr(self, name)}; set at least 1"
                )


def read_settings(extra: dict[str, Any]) -> Settings:
    """The settings, or ConfigError naming the key that is wrong."""
    try:
        return msgspec.convert(extra, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"kv_connector_extra_config: {error}; keys are {', '.join(Settings.__struct_fields__)}"
        ) from error
