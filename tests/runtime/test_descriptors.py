"""The reserve of descriptors: there in time for a peer, and filled again afterwards."""

import asyncio
import os
import resource

import pytest
from test_exhaustion import no_descriptors

from baton.core.messages import PeerDown
from baton.runtime.channel import ControlChannel, ipc_endpoint
from baton.runtime.descriptors import DescriptorReserve, raise_descriptor_limit

SECONDS = 5.0


async def until(condition) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_peer_gets_in_although_no_descriptor_is_free(tmp_path):
    """Without the reserve ZeroMQ would abort this process at the accept."""
    b = ControlChannel("b", 1, ipc_endpoint(tmp_path, "b"))
    reserve = DescriptorReserve("here")
    with no_descriptors():
        await until(lambda: reserve.is_short)
        os.close(os.dup(0))
        a = ControlChannel("a", 1, ipc_endpoint(tmp_path, "a"))
        a.connect("b", b.endpoint)
        a.send("b", PeerDown(worker_id="w", epoch=1))
        assert (await asyncio.wait_for(b.receive(), SECONDS)).message.epoch == 1
        assert reserve.is_short
    await until(lambda: not reserve.is_short)
    reserve.close()
    assert reserve.is_short
    a.close()
    b.close()


async def test_a_reserve_in_a_process_without_descriptors_is_short_from_the_start(capsys):
    before = len(os.listdir("/proc/self/fd"))
    with no_descriptors():
        reserve = DescriptorReserve("here")
        assert reserve.is_short
    reserve.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_soft_limit_is_raised_to_what_the_hard_one_allows():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("the hard limit is low")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        raise_descriptor_limit()
        raised, kept = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert raised > 1024 and kept == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
