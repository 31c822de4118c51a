"""Tables of layer timings: measured places are exact, what lies between and beyond is stated."""

import gzip

import numpy as np
import pytest

from baton.errors import ConfigError
from baton.hardware.layers.attention import read_attention
from baton.hardware.layers.experts import local_woken, read_experts
from baton.hardware.layers.points import Points
from baton.hardware.layers.skew import Spread, read_skew, spread_of

CHUNKS, BEFORE = (16, 64, 256), (0, 128, 512)
COUNTS, LENGTHS = (1, 4, 16), (32, 256, 2048)


def prefill(chunk, before):
    return 5.0 + 0.01 * chunk * (before + chunk / 2)


def decode(count, length):
    return 6.0 + 0.002 * count * length


def rows(chunk, count):
    return 0.001 * (chunk - 16) * count


def mixed_decode(count, length):
    return 2.0 + 0.003 * count * length


def attention_rows():
    """A law that is a sum of its surfaces, as lines of the table."""
    yield "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"
    for count in COUNTS:
        for length in LENGTHS:
            yield f"0,0,{count},{length},{decode(count, length)}"
    for chunk in CHUNKS:
        for before in BEFORE:
            yield f"{chunk},{before},0,0,{prefill(chunk, before)}"
            for count in COUNTS:
                for length in LENGTHS:
                    both = prefill(chunk, before) + rows(chunk, count)
                    yield f"{chunk},{before},{count},{length},{both + mixed_decode(count, length)}"


def write(path, lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_points_are_exact_and_beyond_them_times_grow_with_rows():
    points = Points({1.0: 10.0, 3.0: 14.0, 4.0: 20.0}, "here")
    assert [points.at(x) for x in (1, 2, 3, 4, 8)] == [10.0, 12.0, 14.0, 20.0, 40.0]
    assert [points.rounded_up(x) for x in (1, 2, 3, 3.5, 4, 8)] == [10, 14, 14, 20, 20, 40]


def test_no_rows_is_an_error_that_names_the_table():
    with pytest.raises(ConfigError, match="dense: no rows"):
        Points({}, "dense")


def test_a_launch_of_both_phases_is_split_into_its_parts(tmp_path):
    attention = read_attention(write(tmp_path / "attention.csv", attention_rows()))
    for i, chunk in enumerate(CHUNKS):
        for j, before in enumerate(BEFORE):
            assert attention.prefill.values_us[i][j] == prefill(chunk, before)
        for j, count in enumerate(COUNTS):
            assert attention.mixed_rows.values_us[i][j] == pytest.approx(rows(chunk, count))
    for i, count in enumerate(COUNTS):
        for j, length in enumerate(LENGTHS):
            assert attention.decode.values_us[i][j] == decode(count, length)
            found = attention.mixed_decode.values_us[i][j]
            assert found == pytest.approx(mixed_decode(count, length))
    assert attention.launch_us == prefill(16, 0)
    assert attention.max_chunk == 256


def test_a_gap_of_a_grid_lies_between_its_neighbours(tmp_path):
    lines = [line for line in attention_rows() if not line.startswith("64,128,0,0,")]
    attention = read_attention(write(tmp_path / "attention.csv", lines))
    share = 128 / 512
    expected = prefill(64, 0) * (1 - share) + prefill(64, 512) * share
    assert attention.prefill.values_us[1][1] == pytest.approx(expected)


def test_compressed_tables_are_the_same(tmp_path):
    plain = read_attention(write(tmp_path / "attention.csv", attention_rows()))
    with gzip.open(tmp_path / "packed.csv.gz", "wt") as file:
        file.write("\n".join(attention_rows()))
    assert read_attention(tmp_path / "packed.csv").cells == plain.cells


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["prefill_chunk,kv_prefill,n_decode,kv_decode", "0,0,1,1"], "time_us is None"),
        (["prefill_chunk,kv_prefill,n_decode,kv_decode,time_us", "0,0,x,1,2"], "n_decode is 'x'"),
        (["prefill_chunk,kv_prefill,n_decode,kv_decode,time_us", "0,0,1,1,2"], "one phase alone"),
    ],
)
def test_a_bad_table_names_its_file_and_column(tmp_path, lines, text):
    path = write(tmp_path / "attention.csv", lines)
    with pytest.raises(ConfigError, match=text) as caught:
        read_attention(path)
    assert str(path) in str(caught.value)


def test_a_missing_table_names_both_names_that_it_may_have(tmp_path):
    with pytest.raises(ConfigError, match=r"attention\.csv.*attention\.csv\.gz"):
        read_attention(tmp_path / "attention.csv")


SKEW = (
    "pc,n_label,skew_rate_label,kv_big_label,kp_label,alpha,n_samples",
    "0,n<=2,sr<=40%,kvB<=1k,kp=0,0.25,4",
    "0,n<=2,sr<=40%,kvB<=4k,kp=0,0.125,4",
    "0,n<=8,sr<=40%,kvB<=1k,kp=0,0.5,4",
    "0,n<=8,sr>70%,kvB<=1k,kp=0,0.75,4",
    "16,n<=8,sr<=40%,kvB<=1k,kp=0,9,4",
)


def test_alpha_is_that_of_the_bucket_of_decodes_alone(tmp_path):
    skew = read_skew(write(tmp_path / "skew_fit.csv", SKEW))
    assert skew.alpha(2, 0.3, 1000) == 0.25
    assert skew.alpha(2, 0.3, 1025) == 0.125
    assert skew.alpha(3, 0.3, 1024) == 0.5
    assert skew.alpha(100, 0.9, 10) == 0.75
    assert skew.alpha(3, 0.3, 4096) == 0.0  # never measured
    assert read_skew(tmp_path / "none.csv") is None


def test_a_label_without_a_bound_is_refused(tmp_path):
    path = write(tmp_path / "skew_fit.csv", [SKEW[0], "0,few,sr<=40%,kvB<=1k,kp=0,0.25,4"])
    with pytest.raises(ConfigError, match="n_label is 'few'"):
        read_skew(path)


def test_uneven_rows_take_the_time_between_mean_and_longest(tmp_path):
    skew = read_skew(write(tmp_path / "skew_fit.csv", SKEW))
    spread = Spread(quantiles=(0.75, 1.0, 2.0))
    # Of two rows: 1/3 and 2/3 of the way, so the mean lies between them by 0.2.
    low, high = spread.shortest(2), spread.longest(2)
    assert (low, high) == pytest.approx((0.75 + 0.25 * 2 / 3, 1.0 + 1 / 3))
    of_length = lambda length: 10.0 + length  # noqa: E731
    found = skew.corrected_us(of_length, 2, 300.0, spread)
    assert (1 - low) / (high - low) <= 0.4
    assert found == pytest.approx(310.0 + 0.25 * (300.0 * high - 300.0))
    assert skew.corrected_us(of_length, 1, 300.0, spread) == 310.0


def test_spread_of_equal_requests_is_that_of_one_growing_answer():
    spread = spread_of(np.array([100, 100]), np.array([100, 100]))
    assert spread.longest(1_000_000) == pytest.approx(200 / 150, rel=0.02)
    assert spread.shortest(1_000_000) == pytest.approx(100 / 150, rel=0.03)
    assert spread.longest(1) == pytest.approx(1.0, rel=0.01)


def test_a_long_answer_counts_for_as_many_steps_as_it_takes():
    """Nine short requests for one step each are seen less than one long one."""
    prompts, outputs = np.array([10] * 9 + [1000]), np.array([1] * 9 + [991])
    spread = spread_of(prompts, outputs)
    assert spread.shortest(50) == pytest.approx(1000 / 1483, rel=0.05)


EXPERTS = ("tokens,activated_experts,time_us", "1,8,50", "16,8,60", "16,16,130", "64,16,190")


def test_experts_between_measured_numbers_of_rows_and_of_experts(tmp_path):
    table = read_experts(write(tmp_path / "moe.csv", EXPERTS))
    assert table.us(1, 8) == 50.0
    assert table.us(16, 16) == 130.0
    assert table.us(40, 16) == 160.0
    assert table.us(16, 12) == 95.0
    assert table.us(1, 16) == 130.0  # so many experts were not measured with fewer rows
    assert read_experts(tmp_path / "none.csv") is None


def test_rows_wake_experts_at_random():
    assert local_woken(128, 8, 0, 1) == 0.0
    assert local_woken(128, 8, 1, 1) == pytest.approx(8.0)
    assert local_woken(128, 8, 1, 2) == pytest.approx(4.0)
    assert local_woken(128, 8, 10_000, 2) == pytest.approx(64.0)
    two = 128 * (1 - (120 / 128) ** 2)
    assert local_woken(128, 8, 2, 1) == pytest.approx(two)
