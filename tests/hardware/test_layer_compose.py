"""Steps composed of layers, against sums by hand and against the published timings themselves."""

import csv
import gzip

import pytest
from tests.data import data_file
from tests.hardware.test_layer_tables import (
    EXPERTS,
    SKEW,
    attention_rows,
    decode,
    mixed_decode,
    prefill,
    rows,
    write,
)

from baton.errors import ConfigError
from baton.hardware.evaluate import together_us
from baton.hardware.layers.collectives import Link, all_gather_us, all_reduce_us
from baton.hardware.layers.compose import Composer
from baton.hardware.layers.cut import Cut
from baton.hardware.layers.files import find_folder
from baton.hardware.layers.predictor import LayersPredictor
from baton.hardware.layers.profile import read_profile
from baton.hardware.layers.skew import Spread
from baton.hardware.missing import MissingCell
from baton.hardware.model import find_model
from baton.hardware.model_shape import ModelShape
from baton.hardware.parallel import Parallel
from baton.hardware.system import find_system
from baton.policy.phase_cost import PrefillRows

LINK = Link(bytes_per_us=1000.0, latency_us=7.0)
DENSE = {
    "embedding": 1.0,
    "layernorm": 2.0,
    "qkv_proj": 3.0,
    "rotary_emb": 4.0,
    "o_proj": 5.0,
    "gate_up_proj": 6.0,
    "act_fn": 7.0,
    "down_proj": 8.0,
    "final_layernorm": 9.0,
}
"""Microseconds of a row."""
LAYERS = 3
MODEL = ModelShape(
    name="toy", num_layers=LAYERS, model_dim=50, ffn_dim=100, num_heads=4, num_kv_heads=2,
    head_dim=8, vocab_size=1000,
)  # fmt: skip
MIXTURE = ModelShape(
    name="toy-moe", num_layers=LAYERS, model_dim=50, ffn_dim=0, num_heads=4, num_kv_heads=2,
    head_dim=8, vocab_size=1000, num_experts=32, experts_per_token=4, expert_dim=10,
)  # fmt: skip
PER_ROW = 1 + 9 + LAYERS * (2 * 2 + 3 + 4 + 5 + 6 + 7 + 8)
DENSE_OF_MIXTURE = 1 + 9 + LAYERS * (2 * 2 + 3 + 4 + 5)


def head(sequences):
    return 100.0 + sequences


@pytest.fixture
def folder(tmp_path):
    """ROOT/GPU/owner/toy/bf16/tp1, a law for each table."""
    for name in ("toy", "toy-moe"):
        folder = tmp_path / "GPU" / "owner" / name / "bf16" / "tp1"
        folder.mkdir(parents=True)
        layers = [one for one in DENSE if name == "toy" or one not in DENSE_OF_FFN]
        places = (1, 2, 4, 8, 16, 32, 64, 128)
        write(
            folder / "dense.csv",
            ["layer,tokens,time_us", *(f"{k},{n},{DENSE[k] * n}" for k in layers for n in places)],
        )
        heads = [f"lm_head,{n},{head(n) - 20}" for n in (1, 4, 16)]
        heads += [f"sampler,{n},20" for n in (1, 4, 16)]
        write(folder / "per_sequence.csv", ["layer,sequences,time_us", *heads])
        write(folder / "attention.csv", attention_rows())
        write(folder / "skew_fit.csv", SKEW)
        if name == "toy-moe":
            write(folder / "moe.csv", EXPERTS)
    return tmp_path


DENSE_OF_FFN = ("gate_up_proj", "act_fn", "down_proj")


def composed(root, model=MODEL, cut=None, spread=None):
    cut = cut or Cut()
    profile = read_profile(find_folder(root, "gpu", model, 1))
    return Composer(profile, model, cut, LINK, spread).curves()


def chunk(num_rows, num_visible=0):
    return PrefillRows(num_rows=num_rows, num_visible=num_visible)


def test_decodes_alone(folder):
    found = composed(folder).step_us([], [256] * 4)
    assert found == pytest.approx(PER_ROW * 4 + LAYERS * decode(4, 256) + head(4))


def test_one_prompt_alone(folder):
    found = composed(folder).step_us([chunk(64, 128)], [])
    assert found == pytest.approx(PER_ROW * 64 + LAYERS * prefill(64, 128) + head(1))


def test_two_prompts_share_a_launch(folder):
    found = composed(folder).step_us([chunk(16), chunk(16)], [])
    attention = 2 * prefill(16, 0) - prefill(16, 0)
    assert found == pytest.approx(PER_ROW * 32 + LAYERS * attention + head(2))


def test_both_phases_in_one_launch(folder):
    found = composed(folder).step_us([chunk(64, 128)], [256] * 16)
    attention = prefill(64, 128) + rows(64, 16) + mixed_decode(16, 256)
    expected = PER_ROW * 80 + LAYERS * attention + head(17)
    # 80 rows take the tiles of 128.
    expected += PER_ROW * (128 - 80)
    assert found == pytest.approx(expected)


def test_tensor_parallel_ranks_reduce_twice_a_layer(folder):
    for tp in (1, 2):
        (folder / "GPU" / "owner" / "toy" / "bf16" / f"tp{tp}").mkdir(exist_ok=True)
    for name in ("dense", "per_sequence", "attention", "skew_fit"):
        text = (folder / "GPU/owner/toy/bf16/tp1" / f"{name}.csv").read_text()
        (folder / "GPU/owner/toy/bf16/tp2" / f"{name}.csv").write_text(text)
    system = find_system("h100_sxm")
    predictor = LayersPredictor(folder)
    alone = predictor.engine_curves(MODEL, "GPU", Cut(), LINK).step_us([], [256] * 4)
    both = predictor.engine_curves(MODEL, "GPU", Cut(tp=2), LINK).step_us([], [256] * 4)
    reduced = 7.0 + 4 * 50 * 2 / 1000.0
    assert both - alone == pytest.approx(2 * LAYERS * reduced)
    with pytest.raises(MissingCell, match="no layer timings of system 'h100_sxm'"):
        predictor.curves(MODEL, system, Parallel(tp=2))


def test_ring_shares():
    assert all_reduce_us(LINK, 1000.0, 1) == 0.0
    assert all_reduce_us(LINK, 1000.0, 2) == 7.0 + 1.0
    assert all_reduce_us(LINK, 1000.0, 4) == 14.0 + 1.5
    assert all_gather_us(LINK, 1000.0, 4) == 14.0 + 0.75


def test_experts_take_the_rows_of_all_ranks(folder):
    curves = composed(folder, MIXTURE, Cut(dp=2, is_expert_parallel=True))
    profile = read_profile(find_folder(folder, "gpu", MIXTURE, 1))
    woken = 16 * (1 - (28 / 32) ** 20)
    experts = profile.experts.us(10.0, woken) + 2 * (7.0 + 0.5 * 20 * 50 * 2 / 1000.0)
    dense = DENSE_OF_MIXTURE * 4 + LAYERS * decode(4, 256) + head(4)
    alone = curves.step_us([], [256] * 4)
    found = together_us(curves.packed(), alone, 4.0, 20.0)
    # Between the places 16 and 32 of the line over all rows.
    low, high = (
        profile.experts.us(n / 2, 16 * (1 - (28 / 32) ** n)) + 2 * (7.0 + 0.5 * n * 0.1)
        for n in (16, 32)
    )
    assert found - dense == pytest.approx(LAYERS * (low + (high - low) * 4 / 16))
    assert found - dense == pytest.approx(LAYERS * experts, rel=0.03)


def test_uneven_contexts_lengthen_decodes_alone(folder):
    spread = Spread(quantiles=(0.75, 1.0, 2.0))
    even, uneven = composed(folder), composed(folder, spread=spread)
    lengths = [256] * 4
    mean_share = (1 - spread.shortest(4)) / (spread.longest(4) - spread.shortest(4))
    assert mean_share < 0.4
    longest = 256 * spread.longest(4)
    more = 0.5 * (decode(4, longest) - decode(4, 256))
    assert uneven.step_us([], lengths) - even.step_us([], lengths) == pytest.approx(LAYERS * more)
    both = [chunk(64)], lengths
    assert uneven.step_us(*both) == even.step_us(*both)


def test_what_was_not_measured_is_refused_and_named(folder):
    with pytest.raises(MissingCell, match="nearest: GPU"):
        find_folder(folder, "GPV", MODEL, 1)
    with pytest.raises(MissingCell, match=r"no layer timings of Llama-3\.1-8B on gpu; there are"):
        find_folder(folder, "gpu", find_model("Llama-3.1-8B"), 1)
    with pytest.raises(MissingCell, match="tp8; there are: tp1"):
        find_folder(folder, "gpu", MODEL, 8)
    with pytest.raises(MissingCell, match="know no pipeline stages"):
        LayersPredictor(folder).curves(MODEL, find_system("h100_sxm"), Parallel(pp=2))
    with pytest.raises(MissingCell, match=r"no moe\.csv"):
        Composer(read_profile(find_folder(folder, "gpu", MODEL, 1)), MIXTURE, Cut(), LINK)
    with pytest.raises(MissingCell, match="do not lie evenly over 3 GPUs"):
        composed(folder, MIXTURE, Cut(dp=3, is_expert_parallel=True))


def test_a_layer_that_every_model_has_must_be_there(folder):
    path = folder / "GPU/owner/toy/bf16/tp1/dense.csv"
    path.write_text(path.read_text().replace("qkv_proj", "other"))
    with pytest.raises(ConfigError, match="no rows of the layer qkv_proj"):
        composed(folder)


def published(path):
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(csv.DictReader(text.decode().splitlines()))


@pytest.mark.parametrize(
    ("name", "tp", "layers"), [("meta-llama/Llama-3.1-8B", 1, 32), ("Qwen/Qwen3-32B", 1, 64)]
)
def test_a_step_at_measured_places_is_the_sum_of_its_layers(name, tp, layers):
    root = data_file("vllm-truth/layer-profiles")
    folder = root / "RTXPRO6000" / name / "bf16" / f"tp{tp}"
    dense = {
        one["layer"]: float(one["time_us"])
        for one in published(folder / "dense.csv")
        if one["tokens"] == "128"
    }
    once = dense.pop("embedding") + dense.pop("final_layernorm")
    per_layer = sum(dense.values()) + dense["layernorm"]
    (attention,) = (
        float(one["time_us"])
        for one in published(folder / "attention.csv.gz")
        if [*one.values()][:4] == ["0", "0", "128", "1024"]
    )
    heads = sum(
        float(one["time_us"])
        for one in published(folder / "per_sequence.csv")
        if one["sequences"] == "128"
    )
    curves = LayersPredictor(root).engine_curves(find_model(name), "RTXPRO6000", Cut(tp=tp), LINK)
    expected = once + layers * (per_layer + attention) + heads
    assert curves.step_us([], [1024] * 128) == pytest.approx(expected, rel=1e-9)
    assert curves.domain.max_rows == 2048


def test_published_launches_of_both_phases_are_close_to_their_parts():
    """Cells that serving meets: 16 decodes and more, contexts of 256 to 4096."""
    root = data_file("vllm-truth/layer-profiles")
    profile = read_profile(root / "RTXPRO6000/meta-llama/Llama-3.1-8B/bf16/tp1")
    attention = profile.attention
    at_rows = {(x, y): attention.mixed_rows.values_us[i][j]
               for i, x in enumerate(attention.mixed_rows.x)
               for j, y in enumerate(attention.mixed_rows.y)}  # fmt: skip
    at_decode = {(x, y): attention.mixed_decode.values_us[i][j]
                 for i, x in enumerate(attention.mixed_decode.x)
                 for j, y in enumerate(attention.mixed_decode.y)}  # fmt: skip
    errors = sorted(
        abs(attention.cells[c, v, 0, 0] + at_rows[c, n] + at_decode[n, k] - us) / us
        for (c, v, n, k), us in attention.cells.items()
        if c >= 64 and v <= 2048 and n >= 16 and 256 <= k <= 4096
    )
    assert len(errors) > 500
    assert errors[len(errors) // 2] < 0.02
    assert errors[len(errors) * 9 // 10] < 0.06
