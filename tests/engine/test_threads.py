"""Several threads give the bits of one, and share the rows of a call as they should."""

import threading

import numpy as np
import pytest
import torch
from engine_models import Sequence_, load, prompt, run_mixed, save_family

from baton.engine import team_ops
from baton.engine.team import Team, even_spans, weighted_spans


@pytest.fixture(autouse=True)
def one_thread_afterwards():
    yield
    torch.set_num_threads(1)


@pytest.fixture
def shared_from_the_first_row(monkeypatch):
    """The tiny model's steps are far below the size from which threads pay."""
    monkeypatch.setattr(team_ops, "LEAST_ELEMENTS", 0)
    monkeypatch.setattr(team_ops, "LEAST_VISIBLE_NBYTES", 0)


def outcome(engine, chunk, lengths=(70, 9, 130, 33, 64), count=8):
    """Tokens, logits digests and K/V digest of sequences that join one step apart."""
    sequences = [
        Sequence_(str(i), prompt(length, i), range(12 * i, 12 * i + 12))
        for i, length in enumerate(lengths)
    ]
    run_mixed(engine, sequences, chunk, count)
    return [
        (s.token_ids, s.digests, engine.kv_digest(s.table, len(s.token_ids) - 1)) for s in sequences
    ]


@pytest.mark.parametrize("chunk", [29, 512])
def test_two_threads_give_the_bits_of_one(tiny, shared_from_the_first_row, chunk):
    one = load(tiny, threads=1)
    assert one.deterministic and "1 thread)" in one.deterministic_report
    expected = outcome(one, chunk)
    for threads in (2, 3):
        several = load(tiny, threads=threads)
        assert several.deterministic
        assert f"{threads} threads)" in several.deterministic_report
        assert outcome(several, chunk) == expected


def test_the_kernels_are_really_shared(tiny, shared_from_the_first_row, monkeypatch):
    engine = load(tiny, threads=2, self_test=False)
    names = {"rope_and_write": set(), "paged_decode": set()}
    for module, name in ((team_ops.kernels, "rope_and_write"),
                         (team_ops.decode_kernel, "paged_decode")):  # fmt: skip
        kernel = getattr(module, name)

        def watched(*arguments, kernel=kernel, name=name):
            names[name].add(threading.current_thread().name)
            kernel(*arguments)

        monkeypatch.setattr(module, name, watched)
    outcome(engine, 512, count=4)
    assert all(len(seen) == 2 and "engine-team" in seen for seen in names.values())


def test_an_engine_thread_uses_them_too(tiny, shared_from_the_first_row):
    """A worker loads in its main thread and steps in another one."""
    expected = outcome(load(tiny, threads=1), 64)
    engine, found = load(tiny, threads=2), []
    thread = threading.Thread(
        target=lambda: found.extend((outcome(engine, 64), torch.get_num_threads()))
    )
    thread.start()
    thread.join()
    assert found == [expected, 2]


@pytest.mark.parametrize("family", ["gemma2", "olmo2", "phi3", "qwen3"])
def test_wide_models_of_other_families(tmp_path, family, shared_from_the_first_row):
    """Wide enough that torch shares its own element-wise loops, at any odd number of rows."""
    wide = {"hidden_size": 512, "intermediate_size": 1056, "num_hidden_layers": 2}
    folder = save_family(family, tmp_path, **wide)
    one = load(folder, self_test=False)
    lengths, count = (77, 130), 3
    expected = outcome(one, 67, lengths, count)
    two = load(folder, threads=2)
    assert two.deterministic, two.deterministic_report
    assert outcome(two, 67, lengths, count) == expected
    assert outcome(two, 512, lengths, count) == expected


def test_threads_of_a_dropped_engine_end(tiny):
    engine = load(tiny, threads=3, self_test=False)
    mine = [t for t in threading.enumerate() if t.name == "engine-team"][-2:]
    del engine
    for thread in mine:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("guilty", [0, 1, 2])
def test_an_error_in_one_part_is_raised_after_all_have_ended(guilty):
    team, ended = Team(3), []

    def work(first, last):
        if first == guilty:
            raise ArithmeticError(f"part {first}")
        ended.append(first)

    with pytest.raises(ArithmeticError, match=f"part {guilty}"):
        team.run([(0, 1), (1, 2), (2, 3)], work)
    assert sorted(ended) == sorted({0, 1, 2} - {guilty})
    ended.clear()
    team.run([(4, 5), (6, 7)], work)
    assert sorted(ended) == [4, 6]


@pytest.mark.parametrize(("count", "parts"), [(1, 1), (1, 4), (2, 2), (5, 2), (7, 3), (16, 4)])
def test_even_spans_cover_every_row_once(count, parts):
    spans = even_spans(count, parts)
    assert [row for i, j in spans for row in range(i, j)] == list(range(count))
    lengths = [j - i for i, j in spans]
    assert len(spans) == min(count, parts) and max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize(
    ("weights", "parts", "expected"),
    [
        ([5], 2, [(0, 1)]),
        ([1, 1, 1, 1], 2, [(0, 2), (2, 4)]),
        ([9, 1, 1, 1], 2, [(0, 1), (1, 4)]),
        ([1, 1, 1, 9], 2, [(0, 3), (3, 4)]),
        ([4, 4, 4], 3, [(0, 1), (1, 2), (2, 3)]),
        ([100, 1, 1], 3, [(0, 1), (1, 3)]),
        ([1, 2, 3], 1, [(0, 3)]),
    ],
)
def test_weighted_spans(weights, parts, expected):
    assert weighted_spans(np.array(weights, np.int64), parts) == expected
