"""Where lives of workers are started: as processes of this host, or on nodes of a cluster."""

from baton.runtime.launch.launcher import Launcher, Life, LifeLost, Site
from baton.runtime.launch.local import LocalLauncher

__all__ = ["Launcher", "Life", "LifeLost", "LocalLauncher", "Site"]
