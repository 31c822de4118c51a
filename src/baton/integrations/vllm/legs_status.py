"""What a rank says of all of its legs together."""

from collections import Counter
from collections.abc import Collection

from baton.integrations.vllm.info import ConnectorInfo
from baton.integrations.vllm.messages import MAX_ASKED, HandoffQuestion, HandoffRecords, Status
from baton.integrations.vllm.node import Node


def status_of(info: ConnectorInfo, nodes: Collection[Node]) -> Status:
    """What is held now; what several legs hold is held once. Counters count each leg."""
    holds, loads, claims, num_tickets = dict[str, int](), dict[str, int](), set[str](), 0
    counters: Counter[str] = Counter()
    for node in nodes:
        holds |= {held.transfer_id: len(held.block_ids) for held in node.holds.holds.values()}
        for transfer_id, loading in node.loads.loads.items():
            loads[transfer_id] = len(loading.order.block_ids)
        claims |= node.holds.claims.keys()
        status = node.status()
        counters.update(status.counters)
        num_tickets = max(num_tickets, status.open_tickets)
    return Status(
        info=info,
        held_blocks=sum(holds.values()),
        loading_blocks=sum(loads.values()),
        open_holds=len(holds),
        open_loads=len(loads),
        waiting_claims=len(claims),
        open_tickets=num_tickets,
        counters=dict(counters),
    )


def records_of(
    nodes: Collection[Node], question: HandoffQuestion, host: str, now_us: int
) -> HandoffRecords:
    """What is remembered of the loads that a question asks for."""
    asked = question.transfer_ids[:MAX_ASKED]
    found = [record for node in nodes for record in node.records.of(asked)]
    return HandoffRecords(records=tuple(found), host=host, now_us=now_us)
