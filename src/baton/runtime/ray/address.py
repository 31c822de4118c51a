"""The word for a Ray cluster in `cluster.launcher`, and whether Ray is here."""

import importlib.util

from baton.errors import ConfigError

_SCHEME = "ray://"


def ray_address(launcher: str) -> str:
    """What `ray.init` calls it: local to start one, auto, or HOST:PORT of a head.

    Raises ConfigError for another word, and where Ray is not installed.
    """
    rest = launcher.removeprefix(_SCHEME)
    host, colon, port = rest.rpartition(":")
    if launcher != "ray" and rest != "auto" and not (host and colon and port.isdigit()):
        raise ConfigError(
            f"cluster.launcher {launcher!r}: use local, ray (starts a Ray on this host), "
            "ray://auto (the cluster that this host is in) or ray://HOST:PORT (of "
            "its head, 6379 as a rule)"
        )
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(
            f"cluster.launcher {launcher!r} needs Ray, which is not installed; run "
            "`pip install 'kvbaton[ray]'` on every node, or use local"
        )
    return "local" if launcher == "ray" else rest
