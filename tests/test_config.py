"""Configuration: every mistake is refused with its place, and nothing is silently ignored."""

import tomllib
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from baton.cli import app
from baton.config import BatonConfig, load_config
from baton.core.ids import Direction, Role
from baton.core.knobs import knobs_of
from baton.errors import ConfigError


def load(text: str, tmp_path: Path, overrides: list[str] | None = None) -> BatonConfig:
    path = tmp_path / "baton.toml"
    path.write_text(text)
    return load_config(path, overrides)


def test_the_defaults_are_valid_and_serve_a_split():
    config = load_config()
    assert config == BatonConfig()
    assert config.cluster.roles == (Role.PREFILL, Role.DECODE)


def test_a_file_changes_only_what_it_names(tmp_path):
    config = load('[worker]\nblock_size = 32\n[transfer]\ndirection = "pull"\n', tmp_path)
    assert config.worker.block_size == 32
    assert config.transfer.direction is Direction.PULL
    assert config.router == BatonConfig().router


def test_an_override_wins_over_the_file(tmp_path):
    config = load("[worker]\nblock_size = 32\n", tmp_path, ["worker.block_size=64"])
    assert config.worker.block_size == 64


def test_the_last_override_wins():
    assert load_config(None, ["gateway.port=1", "gateway.port=2"]).gateway.port == 2


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("model.name=llama", lambda c: c.model.name == "llama"),
        ('model.name="llama"', lambda c: c.model.name == "llama"),
        ("transfer.checksum=false", lambda c: c.transfer.checksum is False),
        ("gateway.body_timeout_s=1.5", lambda c: c.gateway.body_timeout_s == 1.5),
        (" worker.block_size = 64", lambda c: c.worker.block_size == 64),
        ("transfer.schedule=request", lambda c: c.transfer.schedule == "request"),
        ("model.name=a=b", lambda c: c.model.name == "a=b"),
    ],
)
def test_overrides_read_toml_values_and_bare_words(override, read):
    assert read(load_config(None, [override]))


@pytest.mark.parametrize(
    ("override", "place"),
    [
        ("worker.blocksize=1", "blocksize"),
        ("wroker.block_size=16", "wroker"),
        ("worker.block_size=sixteen", r"worker.block_size"),
        ("worker.block_size=16.5", r"worker.block_size"),
        ("transfer.direction=sideways", r"transfer.direction"),
        ("transfer.schedule=never", r"transfer.schedule"),
        ("model.dtype=int4", r"model.dtype"),
        ("transfer.checksum=1", r"transfer.checksum"),
    ],
)
def test_an_unknown_key_or_wrong_type_names_the_override_and_the_key(override, place):
    with pytest.raises(ConfigError, match=place) as caught:
        load_config(None, [override])
    assert f"--set {override}" in str(caught.value)


@pytest.mark.parametrize(
    "override", ["worker", "worker=1", "block_size=1", ".x=1", "worker.=1", "=", "a.b"]
)
def test_a_malformed_override_says_how_to_write_it(override):
    with pytest.raises(ConfigError, match=r"section\.key=value"):
        load_config(None, [override])


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[worker]\nblocksize = 16\n", "blocksize"),
        ("[wroker]\n", "wroker"),
        ("worker = 3\n", "worker"),
        ('[worker]\nblock_size = "16"\n', r"worker.block_size"),
        ("[worker\n", "TOML"),
        ("[worker]\nblock_size = 16\nblock_size = 16\n", "TOML"),
    ],
)
def test_a_broken_file_is_named(text, place, tmp_path):
    with pytest.raises(ConfigError, match=place) as caught:
        load(text, tmp_path)
    assert str(tmp_path / "baton.toml") in str(caught.value)


def test_a_file_that_is_not_text_or_not_there_is_named(tmp_path):
    path = tmp_path / "baton.toml"
    with pytest.raises(ConfigError, match=r"baton\.toml: cannot read"):
        load_config(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"baton\.toml: not valid TOML"):
        load_config(path)
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("overrides", "place"),
    [
        (["worker.block_size=0"], "worker.block_size"),
        (["worker.block_size=24"], "worker.block_size"),
        (["worker.block_size=512"], "worker.block_size"),
        (["worker.kv_nbytes=0"], "worker.kv_nbytes"),
        (["worker.threads=0"], "worker.threads"),
        (["worker.max_batch_tokens=0"], "worker.max_batch_tokens"),
        (["worker.max_num_seqs=0"], "worker.max_num_seqs"),
        (["worker.max_reservations=0"], "worker.max_reservations"),
        (["worker.growth_tokens=-1"], "worker.growth_tokens"),
        (["transfer.chunk_nbytes=0"], "transfer.chunk_nbytes"),
        (["transfer.credit_nbytes=1"], "transfer.credit_nbytes"),
        (["transfer.lease_ms=0"], "transfer.lease_ms"),
        (["transfer.retry_ms=0"], "transfer.retry_ms"),
        (["transfer.retry_ms=10000"], "transfer.retry_ms"),
        (["transfer.capability_ttl_ms=0"], "transfer.capability_ttl_ms"),
        (["transfer.capability_ttl_ms=499"], "transfer.capability_ttl_ms"),
        (["router.max_attempts=0"], "router.max_attempts"),
        (["router.ttft_budget_ms=0"], "router.ttft_budget_ms"),
        (["router.attempt_timeout_ms=0"], "router.attempt_timeout_ms"),
        (["router.max_waiting_requests=0"], "router.max_waiting_requests"),
        (["router.max_pending_tokens=-5"], "router.max_pending_tokens"),
        (["router.balancing_threshold=0.5"], "router.balancing_threshold"),
        (["router.ttft_slo_ms=-1"], "router.ttft_slo_ms"),
        (["router.tpot_slo_ms=-1"], "router.tpot_slo_ms"),
        (["router.heartbeat_ms=0"], "router.heartbeat_ms"),
        (["router.worker_timeout_ms=0"], "router.worker_timeout_ms"),
        (["gateway.port=-1"], "gateway.port"),
        (["gateway.port=65536"], "gateway.port"),
        (["gateway.max_body_nbytes=0"], "gateway.max_body_nbytes"),
        (["gateway.body_timeout_s=0"], "gateway.body_timeout_s"),
        (["gateway.stream_stall_s=-1"], "gateway.stream_stall_s"),
        (["gateway.max_n=0"], "gateway.max_n"),
        (["gateway.max_prompts=0"], "gateway.max_prompts"),
        (["cluster.prefill=0"], "cluster"),
        (["cluster.decode=0"], "cluster"),
        (["cluster.prefill=-1"], "cluster.prefill"),
        (["cluster.mixed=1"], "cluster"),
        (["cluster.prefill=60"], "cluster"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_impossible_sizes_name_their_place(overrides, place):
    if overrides == ["cluster.prefill=60"]:
        overrides = [*overrides, "cluster.decode=5"]
    with pytest.raises(ConfigError, match=rf"^{place}: "):
        load_config(None, overrides)


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("cluster", "start_timeout_s"),
        ("cluster", "max_restarts"),
        ("model", "max_model_len"),
    ],
)
def test_a_negative_bound_is_refused(section, name):
    with pytest.raises(ConfigError, match=rf"{section}\.{name}"):
        load_config(None, [f"{section}.{name}=-1"])


@pytest.mark.parametrize("value", ["nan", "-inf"])
def test_a_timeout_is_a_positive_number(value):
    with pytest.raises(ConfigError, match=r"gateway\.body_timeout_s"):
        load_config(None, [f"gateway.body_timeout_s={value}"])


def test_only_mixed_workers_serve_too():
    overrides = ["cluster.prefill=0", "cluster.decode=0", "cluster.mixed=2"]
    assert load_config(None, overrides).cluster.roles == (Role.MIXED, Role.MIXED)


def test_a_configuration_is_frozen_and_known_by_its_digest():
    config = load_config()
    with pytest.raises(AttributeError):
        config.worker.block_size = 1
    assert config.digest == BatonConfig().digest
    assert load_config(None, ["gateway.port=1"]).digest != config.digest


def test_every_knob_is_documented_by_a_default():
    tree = msgspec.to_builtins(BatonConfig())
    assert msgspec.convert(tree, BatonConfig) == BatonConfig()
    assert all(isinstance(section, dict) and section for section in tree.values())


KNOBS = list(knobs_of(BatonConfig()))
FLOATS = [f"{section}.{name}" for section, name, value, _ in KNOBS if isinstance(value, float)]
WORDS = {f"{section}.{name}": choices for section, name, _, choices in KNOBS if choices}


def test_the_knobs_that_are_floats_or_words_are_found():
    assert len(KNOBS) == sum(
        len(section) for section in msgspec.to_builtins(BatonConfig()).values()
    )
    assert {"router.balancing_threshold", "gateway.body_timeout_s"} <= set(FLOATS)
    assert WORDS["cache.eviction"] == ("lru", "lfu", "length_aware", "cost_aware")  # a Literal
    assert WORDS["transfer.direction"] == ("push", "pull")  # an enum


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e999"])
@pytest.mark.parametrize("knob", FLOATS)
def test_no_float_may_be_infinite_or_undefined(knob, value):
    with pytest.raises(ConfigError, match=rf"^{knob}: -?(inf|nan) is not a finite number; .*1e9"):
        load_config(None, [f"{knob}={value}"])
    assert load_config(None, [f"{knob}=1e9"])


@pytest.mark.parametrize("knob", WORDS)
@pytest.mark.parametrize("value", ["fifo", "3"])
def test_another_word_is_refused_with_those_that_are_permitted(knob, value):
    with pytest.raises(ConfigError) as caught:
        load_config(None, [f"{knob}={value}"])
    assert str(caught.value).endswith(f"{knob}`; use one of {', '.join(WORDS[knob])}")
    for word in WORDS[knob]:
        others = ["worker.batch_policy=phase_pure"] if knob == "worker.prompt_order" else []
        load_config(None, [*others, f"{knob}={word}"])


def test_the_printed_configuration_is_one_that_loads_and_shows_the_permitted_words(tmp_path):
    printed = CliRunner().invoke(app, ["config"]).output
    assert load(printed, tmp_path) == BatonConfig()
    assert tomllib.loads(printed) == msgspec.json.decode(msgspec.json.encode(BatonConfig()))
    for knob, words in WORDS.items():
        lines = [line for line in printed.splitlines() if line.endswith(f"  # {', '.join(words)}")]
        assert any(line.startswith(f"{knob.partition('.')[2]} = ") for line in lines)


def test_history_that_is_to_return_needs_blocks_of_one_size():
    returns = "cache.milestone=bidirectional"
    with pytest.raises(ConfigError, match=r"^cache\.milestone: .*decode_block_size 32") as caught:
        load_config(None, [returns, "cluster.decode_block_size=32"])
    assert "worker.block_size 16" in str(caught.value)
    for harmless in (
        [returns, "cluster.decode_block_size=32", "worker.block_size=32"],
        ["cache.milestone=decode", "cluster.decode_block_size=32"],
        [
            returns,
            "cluster.decode_block_size=32",
            "cluster.prefill=0",
            "cluster.decode=0",
            "cluster.mixed=1",
        ],
    ):
        load_config(None, harmless)


def test_history_that_is_to_return_needs_equal_pipelines():
    returns = "cache.milestone=bidirectional"
    with pytest.raises(ConfigError, match=r"^cache\.milestone: .*cluster\.decode_pp 2") as caught:
        load_config(None, [returns, "cluster.decode_pp=2"])
    assert "cluster.prefill_pp 1" in str(caught.value)
    load_config(None, [returns, "cluster.decode_pp=2", "cluster.prefill_pp=2"])
    load_config(None, ["cache.milestone=decode", "cluster.decode_pp=2"])


@pytest.mark.parametrize(
    ("other", "place"),
    [
        ("model.device=cuda", "model.device"),
        ("transfer.staging=always", "transfer.staging"),
        ("cache.host_nbytes=1000000", "cache.host_nbytes"),
    ],
)
def test_what_pipeline_stages_do_not_do_is_refused_by_name(other, place):
    with pytest.raises(ConfigError, match=rf"^{place}: .* with cluster\.decode_pp 2; .*{place}="):
        load_config(None, ["cluster.decode_pp=2", other])
    load_config(None, ["cluster.decode_pp=1", other])
    with pytest.raises(ConfigError, match=r"^cluster\.prefill_pp: 0 is too small; use 1 or more"):
        load_config(None, ["cluster.prefill_pp=0"])
