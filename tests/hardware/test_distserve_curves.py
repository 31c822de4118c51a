"""DistServe's formulas, number by number."""

import json

import pytest
from tests.data import DATA, data_file

from baton.errors import ConfigError
from baton.hardware.distserve import DISPATCH_US, DistServePredictor
from baton.hardware.instance import instance_of
from baton.hardware.model import find_model
from baton.hardware.parallel import Parallel
from baton.hardware.predictor import MissingCell
from baton.hardware.system import find_system
from baton.policy.phase_cost import PrefillRows

A100 = find_system("a100")


@pytest.fixture(scope="module")
def fitted():
    data_file("distserve/profiler-a100-80g.distserve.json")
    return DistServePredictor(DATA)


@pytest.mark.parametrize(
    ("name", "tp", "pp"), [("OPT-13B", 1, 1), ("OPT-13B", 2, 2), ("OPT-66B", 4, 1)]
)
@pytest.mark.parametrize("lengths", [[512], [1], [100, 700, 1300], [2048]])
def test_prefill_is_the_published_formula(fitted, name, tp, pp, lengths):
    fits = json.loads((DATA / "distserve/profiler-a100-80g.distserve.json").read_bytes())
    a, b, c = fits[f"facebook/{name.lower()}"][str(tp)]["prefill"]
    curves = fitted.curves(find_model(name), A100, Parallel(tp=tp, pp=pp))
    ms = (a + b * sum(lengths) + c * sum(one**2 for one in lengths)) / pp + pp
    chunks = [PrefillRows(num_rows=one) for one in lengths]
    assert curves.step_us(chunks, []) == pytest.approx(1000 * ms, rel=1e-12)
    assert curves.pipeline == pp


def test_a_prompt_in_chunks_costs_its_sum_of_squares_once(fitted):
    curves = fitted.curves(find_model("OPT-13B"), A100, Parallel())
    whole = curves.step_us([PrefillRows(num_rows=1000)], [])
    first = curves.step_us([PrefillRows(num_rows=400)], [])
    second = curves.step_us([PrefillRows(num_rows=600, num_visible=400)], [])
    again = curves.step_us([PrefillRows(num_rows=1, num_visible=0)], [])
    fixed = again - 1000 * (0.1019122572698738 + 7.122264314252114e-06)
    assert first + second - fixed == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("batch", [1, 7, 94, 95, 96, 300])
@pytest.mark.parametrize("length", [1, 333, 2048])
def test_decode_is_the_published_formula_on_both_pieces(fitted, batch, length):
    small = (19.934702624895458, 0.0006269356524350583, 0.03850697740828398)
    large = (7.1661889468253595, 0.0005798000403396046, 0.15831096191764046)
    a, b, c = small if batch < 95 else large
    curves = fitted.curves(find_model("OPT-13B"), A100, Parallel())
    ms = a + b * batch * length + c * batch
    assert curves.step_us([], [length] * batch) == pytest.approx(1000 * ms, rel=1e-9)


def test_published_capacities_and_overheads(fitted):
    facts = instance_of(fitted, find_model("OPT-66B"), A100, Parallel(tp=4))
    assert (facts.kv_tokens, facts.gpus, facts.step_overhead_us) == (78_496, 4, DISPATCH_US)
    facts = instance_of(fitted, find_model("OPT-13B"), A100, Parallel(tp=2))
    assert facts.kv_tokens == 163_008


def test_the_older_edition_has_the_largest_model(fitted):
    curves = fitted.curves(find_model("OPT-175B"), A100, Parallel(tp=4, pp=3))
    assert "with-opt175b" in curves.source and not curves.is_extrapolated


def test_what_was_not_fitted_is_refused_and_named(fitted):
    with pytest.raises(MissingCell, match="fitted for TP 1, 2, 4, not 8"):
        fitted.curves(find_model("OPT-13B"), A100, Parallel(tp=8))
    with pytest.raises(MissingCell, match="fitted on a100_sxm, not h100_sxm"):
        fitted.curves(find_model("OPT-13B"), find_system("h100"), Parallel())
    with pytest.raises(MissingCell, match=r"it has opt-13b.* not Llama-3.1-8B"):
        fitted.curves(find_model("Llama-3.1-8B"), A100, Parallel())
    with pytest.raises(MissingCell, match="weights in 16 bits"):
        fitted.curves(find_model("OPT-13B").quantised("int8"), A100, Parallel())


def test_between_fitted_widths_only_when_asked_and_marked(fitted):
    between = DistServePredictor(DATA, interpolates=True)
    model = find_model("OPT-175B")
    with pytest.raises(MissingCell):
        fitted.curves(model, A100, Parallel(tp=3, pp=3))
    found = between.curves(model, A100, Parallel(tp=3, pp=3))
    assert found.is_extrapolated
    chunk = [PrefillRows(num_rows=1024)]
    ends = [between.curves(model, A100, Parallel(tp=tp, pp=3)).step_us(chunk, []) for tp in (2, 4)]
    assert ends[1] < found.step_us(chunk, []) < ends[0]
    with pytest.raises(MissingCell):
        between.curves(model, A100, Parallel(tp=16))


def test_a_folder_without_the_files_is_named(tmp_path):
    with pytest.raises(ConfigError, match="name the folder that holds distserve/"):
        DistServePredictor(tmp_path)
    with pytest.raises(ConfigError, match="engine 'orca'"):
        DistServePredictor(tmp_path, "orca")
