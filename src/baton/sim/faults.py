"""Faults as values: what happens when to whom. A plan lists them, a run records them."""

import msgspec


class _Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all faults; times are world microseconds."""


class Crash(_Fault, frozen=True, kw_only=True, tag="crash"):
    """A worker dies with its memory; it is noticed later and comes back under a new epoch."""

    at_us: int
    worker_id: str
    noticed_after_us: int
    down_us: int


class Stall(_Fault, frozen=True, kw_only=True, tag="stall"):
    """A worker stands still (SIGSTOP, a long page fault); what it is sent waits for it."""

    at_us: int
    worker_id: str
    duration_us: int


class Slow(_Fault, frozen=True, kw_only=True, tag="slow"):
    """A worker's engine and data plane take `factor` times as long."""

    at_us: int
    worker_id: str
    duration_us: int
    factor: int


class Partition(_Fault, frozen=True, kw_only=True, tag="partition"):
    """Nothing passes between two processes, neither messages nor bytes."""

    at_us: int
    between: tuple[str, str]
    duration_us: int


class Clog(_Fault, frozen=True, kw_only=True, tag="clog"):
    """Messages between two processes wait until the end."""

    at_us: int
    between: tuple[str, str]
    duration_us: int


class Revoke(_Fault, frozen=True, kw_only=True, tag="revoke"):
    """The operator revokes every route and capability issued so far."""

    at_us: int


class Clear(_Fault, frozen=True, kw_only=True, tag="clear"):
    """The operator clears the cache: nothing that is held now may be reused."""

    at_us: int


class Hang(_Fault, frozen=True, kw_only=True, tag="hang"):
    """A worker's engine answers nothing any more; all else of the process lives on."""

    at_us: int
    worker_id: str


class Echo(_Fault, frozen=True, kw_only=True, tag="echo"):
    """The hello of a worker's first life arrives once more."""

    at_us: int
    worker_id: str


class GiveUp(_Fault, frozen=True, kw_only=True, tag="give_up"):
    """A worker that lives is given up: its next life starts while it runs on, for a while.

    So it is where a host is out of reach: whoever decided it cannot end the process there.
    """

    at_us: int
    worker_id: str
    runs_on_us: int
    down_us: int


class MessageFault(_Fault, frozen=True, kw_only=True, tag="message"):
    """The `number`-th message of a lane is dropped, or delivered again or out of order later.

    A corrupted control message fails to decode and is dropped by its receiver: it is a drop.
    `forge` widens the capability that it carries, which breaks the issuer's signature; `replay`
    puts one of another transfer in its place, `strip` takes it from a prefill. `mangle` offers a
    reader other blocks than the source has. `intrude`: another live worker says the same first,
    with other contents.
    """

    lane: str
    number: int
    kind: str
    delay_us: int = 0


class ChunkFault(_Fault, frozen=True, kw_only=True, tag="chunk"):
    """The `number`-th copy of a worker's data plane goes wrong.

    `corrupt` flips bytes after the source summed them, `fail` reports an error, `late` takes long
    and then writes, `repeat` notifies the peer a second time after `delay_us`, `contradict` does so
    at once and with another checksum. `digest`: the `number`-th read-back reports an error.
    `tier_fail`: the `number`-th copy between tiers reports an error; `tier_corrupt`: bytes flip,
    below memory after they were summed, on their way up before.
    """

    worker_id: str
    number: int
    kind: str
    delay_us: int = 0


class EngineFault(_Fault, frozen=True, kw_only=True, tag="engine"):
    """The `number`-th batch of a worker fails half-way."""

    worker_id: str
    number: int


Scheduled = Crash | Stall | Slow | Partition | Clog | Revoke | Clear | Hang | Echo | GiveUp
Counted = MessageFault | ChunkFault | EngineFault


class FaultRates(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities of the faults that hit single messages, copies and batches; 0 is calm."""

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    forge: float = 0.0
    corrupt: float = 0.0
    fail: float = 0.0
    late: float = 0.0
    repeat: float = 0.0
    engine: float = 0.0
    replay: float = 0.0
    strip: float = 0.0
    mangle: float = 0.0
    intrude: float = 0.0
    contradict: float = 0.0
    digest: float = 0.0
    tier_fail: float = 0.0
    tier_corrupt: float = 0.0


def describe(fault: Scheduled | Counted) -> str:
    """One line for a fault plan."""
    fields = [f"{name}={getattr(fault, name)}" for name in fault.__struct_fields__]
    return f"{type(fault).__name__.lower()} " + " ".join(fields)
