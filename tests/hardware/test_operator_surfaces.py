"""Surfaces of measured factors, and the tables that they are read from; no data needed."""

import gzip

import numpy as np
import pytest

from baton.errors import ConfigError
from baton.hardware.operators.columns import read_columns
from baton.hardware.operators.precision import find_precision
from baton.hardware.operators.surface import Surface


def grid():
    x, y = np.meshgrid([1.0, 4.0, 16.0], [2.0, 8.0], indexing="ij")
    return x.ravel(), y.ravel(), (1 + x * 0.25 + y * 0.5).ravel()


def test_measured_cells_come_back_exactly():
    x, y, factors = grid()
    found = Surface.of_points((x, y), factors).factor(x, y)
    assert found == pytest.approx(factors, rel=1e-12)


def test_between_cells_the_factor_is_the_geometric_mean():
    x, y, factors = grid()
    surface = Surface.of_points((x, y), factors)
    low, high = surface.factor(1.0, 2.0), surface.factor(4.0, 2.0)
    assert float(surface.factor(2.0, 2.0)) == pytest.approx(float(np.sqrt(low * high)))


def test_beyond_the_grid_the_factor_stays_and_the_place_is_outside():
    x, y, factors = grid()
    surface = Surface.of_points((x, y), factors)
    assert float(surface.factor(99.0, 2.0)) == pytest.approx(float(surface.factor(16.0, 2.0)))
    assert surface.is_outside(99.0, 2.0) and not surface.is_outside(16.0, 8.0)


def test_of_several_kernels_the_quickest_counts():
    surface = Surface.of_points((np.array([1.0, 1.0, 2.0]),), np.array([3.0, 2.0, 5.0]))
    assert float(surface.factor(1.0)) == pytest.approx(2.0)


def test_a_missing_cell_takes_the_nearest_along_the_last_axis():
    x, y = np.array([1.0, 1.0, 2.0]), np.array([1.0, 4.0, 1.0])
    surface = Surface.of_points((x, y), np.array([2.0, 3.0, 7.0]))
    assert float(surface.factor(2.0, 4.0)) == pytest.approx(7.0)


def test_no_cell_at_all_is_refused():
    with pytest.raises(ConfigError, match="no measured cell"):
        Surface.of_points((np.array([]),), np.array([]))


def test_columns_of_a_plain_and_of_a_gzipped_file(tmp_path):
    text = "m,latency_ms,kind\n1,0.5,a\n2,,b\n"
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("a.csv", "a.csv.gz"):
        columns = read_columns(tmp_path / name)
        assert len(columns) == 2 and list(columns.texts("kind")) == ["a", "b"]
        assert columns.numbers("latency_ms")[0] == 0.5
        assert np.isnan(columns.numbers("latency_ms")[1])


@pytest.mark.parametrize(
    ("text", "error"),
    [("m,n\n1\n", "line 2 has 1 cells"), ("", "empty"), ("m\nx\n", "column m")],
)
def test_a_broken_table_names_what_is_wrong(tmp_path, text, error):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ConfigError, match=error):
        read_columns(tmp_path / "a.csv").numbers("m")


def test_an_unknown_column_lists_the_known_ones(tmp_path):
    (tmp_path / "a.csv").write_text("m,n\n1,2\n")
    with pytest.raises(ConfigError, match=r"no column 'k'; it has m, n"):
        read_columns(tmp_path / "a.csv").numbers("k")


def test_an_unknown_precision_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"'fp3': use one of bfloat16, fp8"):
        find_precision("fp3")
