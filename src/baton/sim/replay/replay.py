"""A workload on a deployment in virtual time: the records that its clients would have written."""

from baton.errors import ConfigError
from baton.goodput.record import RequestRecord
from baton.policy.service_profile import ServiceProfile
from baton.sim.replay.client import ReplayClient, ReplayCounts
from baton.sim.replay.deployment import ReplayDeployment
from baton.sim.replay.setup import ReplaySetup
from baton.workload.request import Workload

START_US = 1_000_000
"""The workload starts when the workers have joined and said how they are."""


def replay(workload: Workload, setup: ReplaySetup, profile: ServiceProfile) -> list[RequestRecord]:
    """Serve every request by the production nodes; records in the workload's order.

    Equal arguments give equal records. A request that the gateway or the router refuses, or that
    fails, has a record with that outcome and its error.
    """
    return replay_counted(workload, setup, profile)[0]


def replay_counted(
    workload: Workload, setup: ReplaySetup, profile: ServiceProfile
) -> tuple[list[RequestRecord], ReplayCounts]:
    """The records, and what the deployment did meanwhile."""
    deployment = ReplayDeployment(setup, profile)
    deployment.run_until(START_US)
    if missing := deployment.router.missing(START_US):
        raise ConfigError(f"setup: {missing} within {START_US / 1e6:g} s of virtual time")
    clients = [
        ReplayClient(workload, index, START_US, setup) for index in range(len(workload.requests))
    ]
    for client in clients:
        # Prompts are made as they are sent: all of a long trace would fill the memory.
        deployment.run_until(client.send_at_us)
        deployment.submit(client)
    deployment.run_out()
    return [client.record() for client in clients], deployment.counts()
