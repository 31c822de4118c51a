"""Two network namespaces joined by one virtual cable, for as long as they are needed."""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator

import msgspec

from baton.errors import ConfigError

_CLONE_NEWNET = 0x40000000
_CLONE_NEWNS = 0x00020000
_MS_REC, _MS_SLAVE, _MNT_DETACH = 0x4000, 0x80000, 2
_ADDRESSES = ("10.233.71.1", "10.233.71.2")


class Namespace(msgspec.Struct, frozen=True):
    """A network stack of its own: by its name, and the one address that it has on the cable."""

    name: str
    address: str

    def enter(self) -> None:
        """This process is in it from now on; called before it has any other thread.

        What is below /sys is made that of the namespace too: UCX looks there for interfaces.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        handle = os.open(f"/run/netns/{self.name}", os.O_RDONLY | os.O_CLOEXEC)
        for done in (
            libc.setns(handle, _CLONE_NEWNET),
            libc.unshare(_CLONE_NEWNS),
            libc.mount(b"", b"/", b"none", _MS_SLAVE | _MS_REC, None),
            libc.umount2(b"/sys", _MNT_DETACH),
            libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None),
        ):
            if done != 0:
                code = ctypes.get_errno()
                raise OSError(code, f"cannot enter a network namespace: {os.strerror(code)}")
        os.close(handle)


@contextlib.contextmanager
def cable() -> Iterator[tuple[Namespace, Namespace]]:
    """Make both; they are removed at the end. Raises ConfigError where this may not be done."""
    names = [f"baton-{os.getpid()}-{side}" for side in "ab"]
    spaces = [Namespace(*pair) for pair in zip(names, _ADDRESSES, strict=True)]
    ends = [f"veth{os.getpid()}{side}" for side in "ab"]
    try:
        for space in spaces:
            _ip("netns", "add", space.name)
        _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for space, end in zip(spaces, ends, strict=True):
            _ip("link", "set", end, "netns", space.name)
            _ip("-n", space.name, "addr", "add", f"{space.address}/30", "dev", end)
            _ip("-n", space.name, "link", "set", end, "up")
            _ip("-n", space.name, "link", "set", "lo", "up")
        yield spaces[0], spaces[1]
    finally:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    try:
        subprocess.run(["ip", *words], capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise ConfigError("network namespaces need the `ip` command of iproute2") from error
    except subprocess.CalledProcessError as error:
        raise ConfigError(
            f"`ip {' '.join(words)}` failed: {error.stderr.strip()}; making network namespaces "
            "needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN)"
        ) from error
