"""Replays a workload through the production nodes in virtual time, by a measured profile."""

from baton.sim.replay.client import ReplayCounts
from baton.sim.replay.replay import replay, replay_counted
from baton.sim.replay.setup import Delays, ReplaySetup

__all__ = ["Delays", "ReplayCounts", "ReplaySetup", "replay", "replay_counted"]
