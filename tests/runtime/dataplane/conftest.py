"""Factories of workers and remote peers that clean up after themselves."""

from collections.abc import Callable, Iterator

import pytest

from baton.runtime.dataplane import RegionDescriptor, sweep_orphans

from .harness import KINDS, MIB, RemotePeer, Worker


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    """Which data plane; a module of tests of one overrides this."""
    return request.param


@pytest.fixture
def workers(kind) -> Iterator[Callable[..., Worker]]:
    """A factory of workers that are closed at the end."""
    made: list[Worker] = []

    def make(*args, **kwargs) -> Worker:
        made.append(Worker(*args, kind=kind, **kwargs))
        return made[-1]

    yield make
    for worker in made:
        worker.close()


@pytest.fixture
def pair(workers) -> tuple[Worker, Worker]:
    """Two workers that know each other."""
    source, destination = workers("source"), workers("destination")
    source.plane.connect(destination.descriptor)
    destination.plane.connect(source.descriptor)
    return source, destination


@pytest.fixture
def remote(kind) -> Iterator[Callable[..., RemotePeer]]:
    """A factory of remote peers that are killed, and their segments swept, at the end."""
    made: list[RemotePeer] = []

    def make(known: RegionDescriptor, nbytes: int = 64 * MIB) -> RemotePeer:
        made.append(RemotePeer(known, nbytes, kind))
        return made[-1]

    yield make
    for peer in made:
        peer.stop()
    sweep_orphans()
