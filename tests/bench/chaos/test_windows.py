"""How much of a part the gateway's missing descriptors may take, and what clients do meanwhile."""

import asyncio
import random
import socket

import pytest

from baton.bench.chaos.answers import Answer
from baton.bench.chaos.asks import make_asks
from baton.bench.chaos.calls import End
from baton.bench.chaos.load import NUM_CLIENTS, Load
from baton.bench.chaos.windows import GRACE_S, GatewayWindows


def fill(windows: GatewayWindows) -> float:
    """Take windows one after another while there is room; how long they are together."""
    now_s = 0.0
    while windows.has_room:
        windows.close(now_s, now_s + windows.length_s + GRACE_S)
        now_s += windows.length_s + GRACE_S
    return now_s


@pytest.mark.parametrize("part_s", [15.0, 30.0, 45.0, 300.0])
def test_windows_take_at_most_a_quarter_of_a_part(part_s):
    windows = GatewayWindows(part_s)
    assert 0 < fill(windows) <= part_s / 4
    assert windows.taken


def test_a_short_part_has_a_short_window_and_none_that_waits_for_a_worker():
    short, long = GatewayWindows(15.0), GatewayWindows(45.0)
    assert short.length_s < long.length_s == GatewayWindows(3600.0).length_s
    assert not short.may_wait_for_a_worker and long.may_wait_for_a_worker


def test_one_window_fits_into_any_part():
    windows = GatewayWindows(2.0)
    fill(windows)
    assert len(windows.taken) == 1


async def test_clients_that_reach_nobody_ask_less_and_less_often():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        asks = make_asks(1)
        calls = []
        load = Load(
            closed.getsockname(),
            asks,
            {ask.name: Answer() for ask in asks},
            frozenset(),
            random.Random(1).randrange(100),
            calls.append,
            lambda kind: None,
        )
        loading = asyncio.create_task(load.run())
        await asyncio.sleep(2.0)
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
    assert {called.end for called in calls} == {End.UNREACHED}
    # At 0, 0.1, 0.3, 0.7 and 1.5 s; with a fixed pause of 0.1 s it would be twenty times.
    assert NUM_CLIENTS <= len(calls) <= 5 * NUM_CLIENTS
