"""K/V capacity by formula against published capacities, and models that do not fit."""

import csv
from statistics import median

import pytest
from tests.data import data_file

from baton.errors import ConfigError
from baton.hardware.memory import fitting, kv_tokens, room
from baton.hardware.model import find_model
from baton.hardware.parallel import Parallel
from baton.hardware.shards import shard_of
from baton.hardware.system import find_system


def test_the_ledger_by_hand():
    model, system = find_model("Llama-3.1-8B"), find_system("h100")
    found = room(model, system, Parallel(tp=2), 0.9, max_batch_tokens=1000)
    assert found.usable_nbytes == pytest.approx(0.9 * 80 * 2**30)
    assert found.weight_nbytes == pytest.approx(model.weight_nbytes / 2)
    assert found.token_nbytes == model.token_nbytes / 2
    widths = 3 * 4096 + (4096 + 4096 + 2 * 1024 + 2 * 14336) / 2
    assert found.activation_nbytes == pytest.approx(2 * 1000 * widths)
    left = found.usable_nbytes - found.weight_nbytes - found.activation_nbytes - 2 * 2**30
    assert found.kv_tokens == int(left // found.token_nbytes)


def test_distserves_published_capacities_with_95_percent_of_the_memory():
    path = data_file("distserve/max_num_tokens.csv")
    errors = []
    for row in csv.DictReader(path.open()):
        cut = Parallel(tp=int(row["tp"]), pp=int(row["pp"]))
        ours = kv_tokens(find_model(row["model"]), find_system("a100"), cut, 0.95)
        errors.append(abs(ours / int(row["max_num_tokens"]) - 1))
    assert len(errors) == 76
    assert median(errors) < 0.005
    assert max(errors) < 0.07  # where weights leave a seventh of the memory, a gigabyte is much


def test_vllms_published_capacity_on_an_h200():
    # 945,029 tokens of Llama-3.1-8B in FP8 on one GPU, in the profile that ai-dynamo ships.
    model = find_model("Llama-3.1-8B-FP8")
    assert kv_tokens(model, find_system("h200"), Parallel()) == pytest.approx(945_029, rel=0.02)


def test_a_model_that_does_not_fit_names_the_least_that_does():
    model, system = find_model("Llama-3.1-70B"), find_system("h100")
    with pytest.raises(ConfigError, match=r"does not fit h100_sxm with TP1 PP1.*TP2 PP1"):
        kv_tokens(model, system, Parallel())
    least = next(fitting(model, system))
    assert least == Parallel(tp=2)
    assert kv_tokens(model, system, least) > 0
    with pytest.raises(ConfigError, match="no cut up to 256 GPUs fits"):
        kv_tokens(find_model("Llama-3.1-405B"), find_system("l4"), Parallel(), 0.02)


def test_cuts_that_cannot_be_are_refused():
    model = find_model("OPT-13B")
    with pytest.raises(ConfigError, match="TP 3 does not divide its 40 heads; use one of 1, 2, 4"):
        shard_of(model, Parallel(tp=3))
    with pytest.raises(ConfigError, match="PP 41 is more than its 40 layers"):
        shard_of(model, Parallel(pp=41))
    with pytest.raises(ConfigError, match="--tp 0: at least 1"):
        Parallel(tp=0)
    with pytest.raises(ConfigError, match=r"--utilization 1\.5: .* above 0 and at most 1"):
        room(model, find_system("a100"), Parallel(), 1.5)


def test_key_value_is_copied_where_heads_run_out():
    grouped, latent = find_model("Llama-3.1-8B"), find_model("DeepSeek-V3")
    assert shard_of(grouped, Parallel(tp=8)).token_nbytes == grouped.token_nbytes / 8
    assert shard_of(grouped, Parallel(tp=16)).token_nbytes == grouped.token_nbytes / 8
    assert shard_of(latent, Parallel(tp=8)).token_nbytes == latent.token_nbytes
    assert shard_of(latent, Parallel(tp=8, pp=2)).layer_share == pytest.approx(31 / 61)


def test_more_gpus_never_hold_less():
    model, system = find_model("OPT-66B"), find_system("a100")
    for wider, narrower in (
        (Parallel(tp=8), Parallel(tp=4)),
        (Parallel(tp=4, pp=2), Parallel(tp=4)),
    ):
        assert kv_tokens(model, system, wider) > kv_tokens(model, system, narrower)
