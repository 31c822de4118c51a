"""Service profiles on disk: read whole, written by one rename."""

import contextlib
import os
from pathlib import Path

from baton.errors import ConfigError
from baton.policy.service_profile import ServiceProfile, decode_profile, encode_profile


def load_profile(path: Path) -> ServiceProfile:
    """Read a profile; raises ConfigError naming the file, what is wrong with it and the remedy."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot read the service profile: {error.strerror}; "
            "measure one with `baton profile`"
        ) from error
    return decode_profile(data, str(path))


def save_profile(profile: ServiceProfile, path: Path) -> None:
    """Write a profile so that a reader sees the old one or the new one, and never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(encode_profile(profile))
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ConfigError(f"{path}: cannot write the service profile: {error.strerror}") from error
