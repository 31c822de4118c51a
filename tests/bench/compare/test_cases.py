"""The built-in cases cover what they promise; prompts and stop strings are made as described."""

from pathlib import Path

import pytest

from baton.bench.compare.arm import candidate_arms, reference_arm
from baton.bench.compare.builtin import HIT_BLOCKS, builtin_cases
from baton.bench.compare.calling import choose_stop
from baton.bench.compare.case import Ask, draw, prompt_of
from baton.bench.compare.command import make_plan
from baton.bench.compare.prompts import read_prompts
from baton.config import BatonConfig, WorkerConfig, load_config
from baton.core.ids import Mode
from baton.core.layout import KVLayout, ModelIdentity, ModelInfo
from baton.errors import BatonError, ConfigError

LAYOUT = KVLayout(num_layers=2, num_kv_heads=1, head_dim=8, block_size=16)
INFO = ModelInfo(
    name="m",
    max_model_len=2048,
    vocab_size=50,
    eos_token_ids=(3, 4),
    identity=ModelIdentity(model="m", checkpoint_hash="c", tokenizer_hash="t"),
    layout=LAYOUT,
)


@pytest.mark.parametrize(("block_size", "max_batch_tokens"), [(16, 512), (8, 64), (1, 16)])
def test_lengths_meet_the_edges(block_size: int, max_batch_tokens: int) -> None:
    worker = WorkerConfig(block_size=block_size, max_batch_tokens=max_batch_tokens)
    cases = builtin_cases(worker)
    lengths = {a.num_tokens for c in cases for r in c.rounds for a in r.asks}
    edges = [k * block_size + d for k in (1, 2, 7) for d in (-1, 0, 1)]
    edges += [max_batch_tokens + d for d in (-1, 0, 1)]
    assert {1, *(edge for edge in edges if edge > 0)} <= lengths
    assert min(lengths) >= 1
    names = [case.name for case in cases]
    assert len(names) == len(set(names))


def test_hits_cover_every_length_and_differ_between_the_sides() -> None:
    cases = builtin_cases(WorkerConfig())
    asks = [a for c in cases if c.name.startswith("hit-edge") for a in c.rounds[-1].asks]
    assert [ask.visible for ask in asks] == [16 * k for k in range(HIT_BLOCKS + 1)]
    uneven = [a for c in cases if c.restarts for a in c.rounds[-1].asks]
    pairs = {(ask.visible, ask.cached) for ask in uneven}
    assert pairs == {(96, 0), (96, 32), (0, 96), (32, 96)}


def test_prompts_share_what_they_should() -> None:
    full = prompt_of("c", "1.0", Ask(num_tokens=40, shared=40), [], INFO)
    part = prompt_of("c", "0.0", Ask(num_tokens=20, shared=16), [], INFO)
    assert len(full) == 40 and len(part) == 20
    assert part[:16] == full[:16] and part[16:] != full[16:20]
    turn = prompt_of("c", "1.0", Ask(num_tokens=5, continues=0), [(7, 8)], INFO)
    assert turn[:2] == (7, 8) and len(turn) == 7
    assert not {3, 4} & set(draw("c", 500, INFO))


def test_arms_hold_every_triple_of_settings_once() -> None:
    arms = [arm for arm in candidate_arms(every=True) if arm.direction is not None]
    rows = [(a.direction, a.schedule, a.narrow, a.checksum) for a in arms]
    for left_out in range(4):
        triples = {row[:left_out] + row[left_out + 1 :] for row in rows}
        assert len(triples) == len(rows) == 8


def test_arms_change_only_what_they_name() -> None:
    base = load_config(None, ["cluster.prefill=2"])
    for arm in (reference_arm(), *candidate_arms(every=True)):
        config = arm.config(base, LAYOUT)
        assert config.model == base.model
        if not arm.pool_blocks:
            assert config.worker == base.worker
        cluster = (config.cluster.prefill, config.cluster.decode, config.cluster.mixed)
        assert cluster == ((0, 0, 1) if arm.mode is Mode.COLOCATED else (2, 1, 0))
        if arm.pool_blocks:
            assert config.worker.kv_nbytes == arm.pool_blocks * LAYOUT.bytes_per_block
        if arm.narrow:
            window = config.transfer.credit_nbytes
            assert config.transfer.chunk_nbytes <= window < 7 * LAYOUT.layer_block_nbytes


def test_stop_strings_come_from_inside_the_text() -> None:
    assert choose_stop("aaaabcd efg") == "aab"
    assert choose_stop("\ufffd\ufffd\ufffdx\ufffd\ufffd") == "x"
    with pytest.raises(BatonError, match="no stop string"):
        choose_stop("\ufffd\ufffd\ufffd")


def test_prompt_files(tmp_path: Path) -> None:
    text = tmp_path / "p.txt"
    text.write_text("one\n\ntwo\n")
    assert [line.prompt for line in read_prompts(text)] == ["one", "two"]
    lines = tmp_path / "p.jsonl"
    lines.write_text('{"prompt": [1, 2], "max_tokens": 4, "seed": 9}\n')
    (line,) = read_prompts(lines)
    assert line.prompt == (1, 2) and line.sampling.max_tokens == 4 and line.sampling.seed == 9
    lines.write_text('{"prompt": "a"}\n{"promt": "b"}\n')
    with pytest.raises(ConfigError, match=r"p\.jsonl:2"):
        read_prompts(lines)
    text.write_text("\n")
    with pytest.raises(ConfigError, match="no prompt"):
        read_prompts(text)


def test_unknown_cases_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--case nope"):
        make_plan(BatonConfig(), None, ["nope"], False)
    with pytest.raises(ConfigError, match="cannot be used with --prompts"):
        make_plan(BatonConfig(), tmp_path / "p.txt", ["length-step"], False)
