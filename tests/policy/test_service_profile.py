"""Step times and token budgets of a profile with known coefficients."""

import time

import pytest

from baton.core.layout import KVLayout, ModelIdentity, ModelInfo
from baton.errors import ConfigError
from baton.policy.phase_cost import PrefillRows, prefill_pairs
from baton.policy.service_profile import BudgetOutcome, StepPhase, phase_of
from baton.policy.service_profile.terms import prefill_blocks, work_amounts
from tests.policy.profiles import GRID, STEPS, make_profile, make_subject

PROFILE = make_profile()


def chunk(num_rows: int, num_visible: int = 0) -> PrefillRows:
    return PrefillRows(num_rows=num_rows, num_visible=num_visible)


def test_a_step_is_the_sum_of_its_terms():
    # 70 rows and 2 decodes: 72 rows = 8 + 8 + 16 + 32 + 8; the chunk 30..100 covers grid blocks
    # 0..63 and 64..127, that is 64 * (64 + 128) pairs, and gathers 100 tokens.
    rows_us = 8 * 1300 + 8 * 1700 + 16 * 2400 + 32 * 2000 + 8 * 2000
    work_us = 0.9 * 64 * 192 + 700 * 2 + 4 * 100 + 3.5 * (10 + 40) + 450 * 2 + 20 * 3
    assert PROFILE.step_us([chunk(70, 30)], [10, 40]) == pytest.approx(27_000 + rows_us + work_us)
    overhead_us = 300 + 3 * 50
    served_us = PROFILE.served_step_us([chunk(70, 30)], [10, 40])
    assert served_us == pytest.approx(27_000 + rows_us + work_us + overhead_us)


def test_few_rows_are_padded_and_no_rows_take_no_time():
    assert PROFILE.step_us([], []) == 0
    one, four = PROFILE.step_us([], [5]), PROFILE.step_us([], [5] * 4)
    assert four - one == pytest.approx(3 * (3.5 * 5 + 450 + 20))  # the linears ran 4 rows anyway


def test_blocks_of_a_chunk_cover_its_causal_pairs():
    for num_rows, visible in [(1, 0), (64, 0), (64, 100), (200, 63), (5, 1000)]:
        pairs, num_blocks = prefill_blocks(chunk(num_rows, visible), 64)
        assert pairs >= prefill_pairs(num_rows, visible)
        first, last = visible // 64, (visible + num_rows - 1) // 64
        assert num_blocks == last - first + 1
        assert pairs == sum(64 * 64 * (block + 1) for block in range(first, last + 1))
    assert prefill_blocks(chunk(5, 10), 0) == (75, 1)
    assert prefill_blocks(chunk(0, 10), 64) == (0, 0)
    assert work_amounts([], [3, 4], 64) == (0, 0, 0, 7, 2, 2)


def test_segments_hold_every_padded_row_once():
    assert list(GRID.segments(1)) == [4, 0, 0, 0, 0, 0, 0]
    assert list(GRID.segments(40)) == [8, 8, 16, 8, 0, 0, 0]
    assert sum(GRID.segments(1000)) == 1000


def test_a_busy_neighbour_stretches_a_step_by_the_factor_of_its_phase():
    for prefills, visible, factor in [
        ([chunk(64)], [], 1.1),
        ([], [100, 200], 1.25),
        ([chunk(64)], [100], 1.1),
    ]:
        alone_us = PROFILE.step_us(prefills, visible)
        busy_us = PROFILE.step_us(prefills, visible, neighbour_busy=True)
        assert busy_us == pytest.approx(factor * alone_us)
    assert phase_of([chunk(1)], [1]) is StepPhase.MIXED


@pytest.mark.parametrize(("num_decodes", "context"), [(0, 1), (1, 100), (8, 512), (32, 2048)])
def test_a_budget_is_the_largest_iteration_under_the_target(num_decodes, context):
    tokens = []
    for tbt_us in range(30_000, 1_500_000, 37_001):
        budget = PROFILE.token_budget(tbt_us, num_decodes=num_decodes, context=context)
        tokens.append(budget.num_tokens)
        if budget.outcome is BudgetOutcome.DECODE_ONLY_MISSES:
            assert budget.step_us > tbt_us and budget.num_tokens == num_decodes
            continue
        assert budget.step_us <= tbt_us
        if budget.outcome is BudgetOutcome.FOUND:
            one_more = [chunk(budget.num_tokens - num_decodes + 1, context)]
            assert PROFILE.served_step_us(one_more, [context] * num_decodes) > tbt_us
    assert tokens == sorted(tokens)
    assert len(set(tokens)) > 3


def test_every_budget_outcome_has_its_name():
    def outcome(tbt_us: float) -> BudgetOutcome:
        return PROFILE.token_budget(tbt_us, num_decodes=8, context=512).outcome

    alone_us = PROFILE.served_step_us([], [512] * 8)
    assert outcome(alone_us - 1) is BudgetOutcome.DECODE_ONLY_MISSES
    assert outcome(alone_us + 1) is BudgetOutcome.NO_ROOM_FOR_PREFILL
    assert outcome(2 * alone_us) is BudgetOutcome.FOUND
    assert outcome(1e9) is BudgetOutcome.AT_LIMIT
    assert PROFILE.token_budget(1e9, num_decodes=8, context=512).num_tokens == STEPS.max_rows


@pytest.mark.parametrize(
    ("tbt_us", "num_decodes", "context", "named"),
    [
        (0.0, 1, 1, "tbt_us"),
        (float("nan"), 1, 1, "tbt_us"),
        (float("inf"), 1, 1, "tbt_us"),
        (1.0, -1, 1, "num_decodes"),
        (1.0, 1, 0, "context"),
    ],
)
def test_a_meaningless_budget_is_refused(tbt_us, num_decodes, context, named):
    with pytest.raises(ConfigError, match=named):
        PROFILE.token_budget(tbt_us, num_decodes=num_decodes, context=context)


def test_sides_of_the_roofline():
    side, compute_us, bytes_us = PROFILE.roofline_side([chunk(512)], [])
    assert side == "compute" and compute_us > bytes_us
    side, compute_us, bytes_us = PROFILE.roofline_side([], [512])
    assert side == "bytes" and bytes_us == pytest.approx(538_000_000 / 18_000, rel=0.1)


def test_only_the_model_it_was_measured_with_is_accepted():
    identity = PROFILE.subject.identity
    layout = PROFILE.subject.shape.layout
    served = ModelInfo(
        name="served", max_model_len=100, vocab_size=10, eos_token_ids=(), identity=identity,
        layout=layout,
    )  # fmt: skip
    PROFILE.require_model(served)
    other = ModelIdentity(model="known", checkpoint_hash="x", tokenizer_hash="t")
    wrong_layout = KVLayout(num_layers=30, num_kv_heads=3, head_dim=64, block_size=32)
    for change, named in [
        ({"identity": other}, "checkpoint"),
        ({"dtype": "bfloat16"}, "dtype"),
        ({"layout": wrong_layout}, "K/V layout"),
        ({"deterministic": False}, "deterministic"),
    ]:
        fields = {name: getattr(served, name) for name in served.__struct_fields__}
        with pytest.raises(ConfigError, match=named):
            PROFILE.require_model(ModelInfo(**{**fields, **change}))


def test_subjects_differ_by_machine_and_kernels_too():
    ours = make_subject()
    assert ours.differences(make_subject()) == []
    hardware = type(ours.hardware)(cpu_model="other", num_cores=4, read_bytes_per_us=1.0)
    found = ours.differences(make_subject(hardware=hardware))
    assert [line.split(":")[0] for line in found] == ["cpu_model", "num_cores"]


def test_a_prediction_is_fast_enough_for_every_simulated_step():
    visible = [500] * 32
    prefills = [chunk(256, 128)]
    begin = time.perf_counter()
    for _ in range(2000):
        PROFILE.step_us(prefills, visible)
    assert (time.perf_counter() - begin) / 2000 < 100e-6
