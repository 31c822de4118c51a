"""Open-loop load for any OpenAI-compatible server, measured at the client."""

from baton.bench.load.client import run_load
from baton.bench.load.inspect import inspect_target
from baton.bench.load.options import LoadOptions
from baton.bench.load.schedule import lateness
from baton.bench.load.target import Abilities, Endpoint, Target

__all__ = [
    "Abilities",
    "Endpoint",
    "LoadOptions",
    "Target",
    "inspect_target",
    "lateness",
    "run_load",
]
