"""Where the published traces are, and the runs that every reproduction shares."""

import os
from pathlib import Path

import msgspec

from baton.errors import ConfigError
from baton.sim.replay.setup import ReplaySetup
from baton.sim.simulate.hardware import Machine, MachineCosts
from baton.sim.simulate.plan import HARDWARE_DEFAULTS, Plan, TraceOptions, read_config
from baton.sim.simulate.report import Report
from baton.sim.simulate.run import simulate
from baton.sim.simulate.trace import load
from baton.workload.request import Workload

TRACES = {
    "conversation": "mooncake/conversation_trace.jsonl.gz",
    "synthetic": "mooncake/synthetic_trace.jsonl.gz",
}
BLOCK_SIZE = 512
"""Tokens of a hash id."""
TICK_MS = {"conversation": 3000, "synthetic": 0}
"""The conversation trace stamps arrivals every 3 s: spread, they are a Poisson process again."""


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of data sets, and how much of each trace is used."""

    folder: Path
    num: int | None = None
    """Only the first so many requests; published figures belong to whole traces."""

    def options(self, name: str, **changed: object) -> TraceOptions:
        """A trace of the folder. Raises ConfigError if it is not there."""
        path = self.folder / TRACES[name]
        if not path.exists():
            raise ConfigError(
                f"{path}: no such file; name a folder that holds {TRACES[name]} "
                "with --data or BATON_DATA"
            )
        options = TraceOptions(path=path, format="mooncake", num=self.num, max_output=1)
        return msgspec.structs.replace(options, **changed)


def data_folder(given: Path | None) -> Path:
    """From the flag or the environment."""
    name = str(given) if given is not None else os.environ.get("BATON_DATA", "")
    if not name:
        raise ConfigError("no data: name the folder of data sets with --data or BATON_DATA")
    return Path(name)


def run(
    options: TraceOptions,
    machine: Machine,
    cluster: list[str],
    *,
    num_blocks: int,
    num_decode_blocks: int = 0,
    workload: Workload | None = None,
) -> Report:
    """One simulation of a named machine; `cluster` are overrides of the configuration."""
    config = read_config(None, cluster, defaults=HARDWARE_DEFAULTS)
    setup = ReplaySetup.from_config(config, max_model_len=2)
    setup = msgspec.structs.replace(
        setup,
        worker=msgspec.structs.replace(setup.worker, block_size=BLOCK_SIZE),
        num_blocks=num_blocks,
        num_decode_blocks=num_decode_blocks,
        shares_memory=False,
    )
    plan = Plan(trace=options, setup=setup, hardware=machine.name, config_digest=config.digest)
    return simulate(plan, MachineCosts(machine), workload or load(options))
