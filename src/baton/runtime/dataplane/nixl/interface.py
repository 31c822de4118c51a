"""Which network interface of this host owns an address."""

import ctypes
import ipaddress
import socket

from baton.errors import ConfigError

_FAMILY = ctypes.c_uint16
_ADDRESS_AT = {socket.AF_INET: (4, 4), socket.AF_INET6: (8, 16)}
"""Where the address is within a socket address, and its length."""


class _Entry(ctypes.Structure):
    """The head of `struct ifaddrs`."""


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def interface_of(host: str) -> str:
    """The name of the interface that owns the address of `host`, a number or a name.

    Raises ConfigError where no interface of this host does.
    """
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise ConfigError(f"cluster.control_host {host!r} is no address: {error}") from error
    wanted = {ipaddress.ip_address(str(text).partition("%")[0]) for text in found}
    owners = _owners()
    for address in wanted:
        if address in owners:
            return owners[address]
        if address.is_loopback:
            return "lo"  # the whole of 127.0.0.0/8 is here, and one address of it is listed
    shown = ", ".join(sorted({str(address) for address in owners}))
    raise ConfigError(
        f"cluster.control_host {host!r} is an address of no interface of this host; it has {shown}"
    )


def _owners() -> dict[ipaddress.IPv4Address | ipaddress.IPv6Address, str]:
    libc = ctypes.CDLL(None, use_errno=True)
    head = ctypes.POINTER(_Entry)()
    if libc.getifaddrs(ctypes.byref(head)):
        raise ConfigError("the interfaces of this host cannot be listed")
    owners = {}
    try:
        entry = head
        while entry:
            one = entry.contents
            if one.address:
                family = _FAMILY.from_address(one.address).value
                if family in _ADDRESS_AT:
                    start, size = _ADDRESS_AT[socket.AddressFamily(family)]
                    raw = ctypes.string_at(one.address + start, size)
                    owners[ipaddress.ip_address(raw)] = one.name.decode()
            entry = one.next
    finally:
        libc.freeifaddrs(head)
    return owners
