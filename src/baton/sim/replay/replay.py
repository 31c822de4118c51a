"""A workload on a deployment in virtual time: the records that its clients would have written."""

from collections.abc import Callable

from baton.errors import ConfigError
from baton.goodput.record import RequestRecord
from baton.sim.replay.client import ReplayClient, ReplayCounts
from baton.sim.replay.costs import Costs
from baton.sim.replay.deployment import ReplayDeployment
from baton.sim.replay.prompts import Prompts, label_prompts
from baton.sim.replay.setup import ReplaySetup
from baton.workload.request import Workload

START_US = 1_000_000
"""The workload starts when the workers have joined and said how they are."""


def replay(workload: Workload, setup: ReplaySetup, profile: Costs) -> list[RequestRecord]:
    """Serve every request by the production nodes; records in the workload's order.

    Equal arguments give equal records. A request that the gateway or the router refuses, or that
    fails, has a record with that outcome and its error.
    """
    return replay_counted(workload, setup, profile)[0]


def replay_counted(
    workload: Workload,
    setup: ReplaySetup,
    profile: Costs,
    *,
    concurrency: int = 0,
    prompts: Prompts | None = None,
    rest_us: int = 0,
    on_sent: Callable[[int], None] | None = None,
) -> tuple[list[RequestRecord], ReplayCounts]:
    """The records, and what the deployment did meanwhile.

    With a `concurrency` the loop is closed: so many requests are open, and the next one is sent
    when one ends, whatever the trace's arrivals say. `prompts` gives the tokens, which otherwise
    follow the workload's hash ids. After the last end the deployment goes on for `rest_us`, in
    which history that was sent back still arrives. `on_sent` hears how many requests were sent.
    """
    if concurrency < 0:
        raise ConfigError(f"concurrency is {concurrency}; use 1 or more, or 0 for the arrivals")
    deployment = ReplayDeployment(setup, profile)
    deployment.run_until(START_US)
    if missing := deployment.router.missing(START_US):
        raise ConfigError(f"setup: {missing} within {START_US / 1e6:g} s of virtual time")
    prompts = prompts or label_prompts(workload, setup.vocab_size, setup.seed)
    clients = [
        ReplayClient(workload, index, START_US, setup, prompts)
        for index in range(len(workload.requests))
    ]
    for client in clients:
        # Prompts are made as they are sent: all of a long trace would fill the memory.
        if concurrency:
            deployment.run_out(concurrency - 1)
            client.scheduled_us = deployment.timeline.now_us - START_US
        else:
            deployment.run_until(client.send_at_us)
        deployment.submit(client)
        if on_sent is not None:
            on_sent(client.index + 1)
    deployment.run_out()
    counted_us = deployment.timeline.now_us
    deployment.run_until(counted_us + rest_us)
    return [client.record() for client in clients], deployment.counts(
        clients, counted_us - START_US
    )
