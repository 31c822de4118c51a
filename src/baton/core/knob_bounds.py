"""Which numbers of a configuration have a least value."""

from baton.errors import ConfigError


def check_bounds(config: object) -> None:
    """Raise ConfigError for a number of a configuration that is out of its range."""
    at_least_one = {
        "cluster": ("prefill_pp", "decode_pp"),
        "worker": ("threads", "kv_nbytes", "max_batch_tokens", "max_num_seqs", "max_reservations"),
        "transfer": (
            "chunk_nbytes",
            "credit_nbytes",
            "lease_ms",
            "retry_ms",
            "capability_ttl_ms",
            "move_timeout_ms",
        ),
        "router": (
            "max_attempts",
            "ttft_budget_ms",
            "attempt_timeout_ms",
            "max_waiting_requests",
            "max_pending_tokens",
            "heartbeat_ms",
            "worker_timeout_ms",
            "batch_timeout_ms",
            "decode_stall_ms",
            "balancing_threshold",
        ),
        "cache": ("copy_timeout_ms", "max_replicas"),
        "gateway": ("max_body_nbytes", "max_n", "max_prompts"),
        "telemetry": ("history_requests",),
    }
    positive = {
        "gateway": ("body_timeout_s", "stream_stall_s"),
        "cluster": ("start_timeout_s", "place_timeout_s"),
    }
    not_negative = {
        "worker": ("growth_tokens", "age_override_ms", "max_passed_over", "max_preemptions"),
        "model": ("max_model_len",),
        "cluster": ("decode_kv_nbytes",),
        "router": ("ttft_slo_ms", "tpot_slo_ms"),
        "cache": ("host_nbytes", "disk_nbytes", "max_copies", "replicate_hits"),
    }
    for table, least, remedy in (
        (at_least_one, 1, "use 1 or more"),
        (positive, 1e-9, "use a positive number"),
        (not_negative, 0, "use 0 or more"),
    ):
        for section, names in table.items():
            for name in names:
                value = getattr(getattr(config, section), name)
                if value < least:
                    raise ConfigError(f"{section}.{name}: {value} is too small; {remedy}")


def check_stages(config: object, field: str, pp_size: int) -> None:
    """Raise ConfigError for what workers of several pipeline stages, as `field` asks, do not do."""
    only = {
        ("model", "device"): "cpu",
        ("transfer", "staging"): "auto",
        ("cache", "host_nbytes"): 0,
        ("cache", "disk_nbytes"): 0,
    }
    for (section, name), value in only.items():
        given = getattr(getattr(config, section), name)
        if pp_size > 1 and given != value:
            raise ConfigError(
                f"{section}.{name}: {given} with {field} {pp_size}; workers of several pipeline "
                f"stages serve with {section}.{name}={value} only"
            )
