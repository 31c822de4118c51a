"""Which workers must stand together, and what each group needs of a node."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from baton.core.ids import Role
from baton.core.units import shown_nbytes
from baton.errors import ConfigError

Spreading = Literal["PACK", "SPREAD", "STRICT_SPREAD"]


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker takes of its node."""

    worker_id: str
    role: Role
    cpus: int
    gpus: int = 0
    memory_nbytes: int = 0


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """Workers that stand on one node."""

    workers: tuple[str, ...]
    cpus: int
    gpus: int
    memory_nbytes: int

    @property
    def text(self) -> str:
        """What it needs, in words."""
        verb = "needs" if len(self.workers) == 1 else "together need"
        return f"{', '.join(self.workers)} {verb} {_shown(self.cpus, self.gpus, self)} on one node"


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of workers, and how the groups stand to each other."""

    spreading: Spreading
    bundles: tuple[Bundle, ...]

    def bundle_of(self, worker_id: str) -> int:
        """The number of the bundle that this worker is in."""
        return next(n for n, one in enumerate(self.bundles) if worker_id in one.workers)


class NodeRoom(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has free."""

    name: str
    cpus: float
    gpus: float = 0.0
    memory_nbytes: float = 0.0


def place_workers(
    needs: Sequence[Need],
    placement: str,
    *,
    nodes: Sequence[int] = (),
    one_host: bool = False,
) -> Placement:
    """Group workers into bundles.

    `nodes` says for each worker on which node of a plan it stands; otherwise `placement` decides:
    pack (few nodes), spread (many), or pair (a prefill worker with its decode worker). `one_host`:
    nothing may leave one node. Raises ConfigError where these contradict each other.
    """
    if nodes and len(nodes) != len(needs):
        raise ConfigError(
            f"cluster.nodes: {len(nodes)} nodes for {len(needs)} workers; name one for each worker "
            "in start order, or none"
        )
    if one_host:
        if len(set(nodes)) > 1 or (not nodes and placement == "spread"):
            asked = f"cluster.nodes {list(nodes)}" if nodes else f"cluster.placement={placement}"
            raise ConfigError(
                f"{asked} puts workers on several nodes, and transfer.data_plane=shm reaches no "
                "other one; use transfer.data_plane=nixl"
            )
        return Placement(spreading="PACK", bundles=(_bundle(needs),))
    if nodes:
        groups = [
            [need for need, at in zip(needs, nodes, strict=True) if at == node]
            for node in sorted(set(nodes))
        ]
        spreading: Spreading = "STRICT_SPREAD" if len(groups) > 1 else "PACK"
    elif placement == "pair":
        groups, spreading = _pairs(needs), "SPREAD"
    else:
        groups = [[need] for need in needs]
        spreading = "SPREAD" if placement == "spread" else "PACK"
    return Placement(spreading=spreading, bundles=tuple(_bundle(group) for group in groups))


def _pairs(needs: Sequence[Need]) -> list[list[Need]]:
    """As many groups as the smaller role has workers, each with its share of the larger one."""
    prefill = [need for need in needs if need.role is Role.PREFILL]
    decode = [need for need in needs if need.role is Role.DECODE]
    if not prefill or not decode:
        return [[need] for need in needs]
    count = min(len(prefill), len(decode))
    return [[*prefill[at::count], *decode[at::count]] for at in range(count)]


def _bundle(needs: Sequence[Need]) -> Bundle:
    return Bundle(
        workers=tuple(need.worker_id for need in needs),
        cpus=sum(need.cpus for need in needs),
        gpus=sum(need.gpus for need in needs),
        memory_nbytes=sum(need.memory_nbytes for need in needs),
    )


def shortage(placement: Placement, rooms: Sequence[NodeRoom]) -> str:
    """What finds no room, the largest first, beside what the nodes have free; "" where all fits.

    Groups are put one after another onto the first node with room: where this fails another order
    might do, so it explains a refusal and makes none.
    """
    free = {room.name: room for room in rooms}
    order = sorted(placement.bundles, key=lambda one: (-one.gpus, -one.cpus, -one.memory_nbytes))
    used: set[str] = set()
    for bundle in order:
        apart = used if placement.spreading == "STRICT_SPREAD" else set()
        fitting = [room for room in free.values() if _fits(bundle, room) and room.name not in apart]
        if not fitting:
            left = "; ".join(f"{r.name} {_shown(r.cpus, r.gpus, r)}" for r in free.values())
            others = " that holds no other group" if apart else ""
            return f"{bundle.text}{others}; free is {left or 'no node at all'}"
        room = min(fitting, key=lambda one: one.name in used)
        used.add(room.name)
        free[room.name] = NodeRoom(
            name=room.name,
            cpus=room.cpus - bundle.cpus,
            gpus=room.gpus - bundle.gpus,
            memory_nbytes=room.memory_nbytes - bundle.memory_nbytes,
        )
    return ""


def _fits(bundle: Bundle, room: NodeRoom) -> bool:
    return (
        bundle.cpus <= room.cpus
        and bundle.gpus <= room.gpus
        and bundle.memory_nbytes <= room.memory_nbytes
    )


def _shown(cpus: float, gpus: float, of: Bundle | NodeRoom) -> str:
    parts = [f"{cpus:g} CPU"] + ([f"{gpus:g} GPU"] if gpus else [])
    return f"{', '.join(parts)} and {shown_nbytes(int(of.memory_nbytes))} of memory"
