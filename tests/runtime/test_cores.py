"""Which cores and thread counts workers get, and what cannot fit."""

import os

import pytest

from baton.config import load_config
from baton.errors import ConfigError
from baton.runtime.cores import check_cores, share_cores, thread_environment, worker_cores


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 3, 6, 7})


def config(*overrides: str):
    return load_config(None, ["model.name=tiny", *overrides])


@pytest.mark.parametrize(
    ("count", "threads", "shares"),
    [
        (2, 1, [(2,), (3,)]),
        (5, 1, [(2,), (3,), (6,), (7,), (2,)]),
        (1, 3, [(2, 3, 6)]),
        (2, 2, [(2, 3), (6, 7)]),
        (1, 4, [(2, 3, 6, 7)]),
    ],
)
def test_shares(four_cores, count, threads, shares):
    assert share_cores(count, threads) == shares


@pytest.mark.parametrize(("count", "threads"), [(1, 5), (2, 3), (3, 2)])
def test_threads_that_do_not_fit_are_refused(four_cores, count, threads):
    need = rf"worker.threads: {count} workers? of {threads} threads need {count * threads} cores, 4"
    with pytest.raises(ConfigError, match=need + r".*cluster.pin_cores=false"):
        share_cores(count, threads)


def test_a_deployment_is_refused_before_anything_starts(four_cores):
    with pytest.raises(ConfigError, match=r"worker\.threads: 2 workers of 3 threads need 6"):
        check_cores(config("worker.threads=3"))
    check_cores(config("worker.threads=2"))


def test_unpinned_threads_that_do_not_fit_are_only_told_of(four_cores, capsys):
    crowded = config("worker.threads=3", "cluster.pin_cores=false")
    check_cores(crowded)
    assert "2 workers of 3 threads need 6 cores, 4 available" in capsys.readouterr().err
    assert worker_cores(crowded) == [(), ()]
    check_cores(config("worker.threads=2", "cluster.pin_cores=false"))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("threads", [0, -1])
def test_no_threads_are_refused(threads):
    with pytest.raises(ConfigError, match=r"worker\.threads: .* is too small"):
        config(f"worker.threads={threads}")


def test_environment(monkeypatch):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert thread_environment(1)["OMP_NUM_THREADS"] == "1"
    assert "GOMP_SPINCOUNT" not in thread_environment(1)
    assert thread_environment(2)["OMP_NUM_THREADS"] == "2"
    assert thread_environment(2)["GOMP_SPINCOUNT"] == "2000"
    monkeypatch.setenv("GOMP_SPINCOUNT", "77")
    assert thread_environment(2)["GOMP_SPINCOUNT"] == "77"
