"""Questions to a running connector: who it is, what it holds, and that a ticket is given up.

`python -m baton.integrations.vllm.status MEMBER_FILE tcp://HOST:PORT...` prints one JSON object a
connector; at rest, held and loading blocks are 0.
"""

import sys

import msgspec

from baton.errors import ConfigError
from baton.integrations.vllm.keys import MemberKeys, load_member
from baton.integrations.vllm.link import Asker
from baton.integrations.vllm.messages import (
    Decline,
    HandoffQuestion,
    HandoffRecords,
    Status,
    StatusQuestion,
)
from baton.integrations.vllm.ticket import read_ticket


def ask_status(endpoint: str, keys: MemberKeys, timeout_ms: int = 2_000) -> Status | None:
    """What the connector at that control endpoint says of itself; None if it does not answer.

    Blocks for at most `timeout_ms`.
    """
    answer = Asker("status", keys).ask(endpoint, StatusQuestion(), timeout_ms)
    return answer if isinstance(answer, Status) else None


def ask_handoffs(
    endpoint: str, keys: MemberKeys, transfer_ids: tuple[str, ...], timeout_ms: int = 2_000
) -> HandoffRecords | None:
    """How these loads went at the rank with that control endpoint; None if it does not answer.

    Blocks for at most `timeout_ms`. Raises ConfigError where another version answers.
    """
    question = HandoffQuestion(transfer_ids=transfer_ids)
    answer = Asker("handoffs", keys).ask(endpoint, question, timeout_ms)
    return answer if isinstance(answer, HandoffRecords) else None


def give_up(ticket: str, keys: MemberKeys, timeout_ms: int = 2_000) -> bool:
    """Tell the source of a ticket that nobody will claim it, so that it lets the blocks go.

    True when the source has answered. Blocks for at most `timeout_ms` a rank.
    """
    read = read_ticket(ticket, keys.verifier())
    decline = Decline(fence=read.fence, capability=read.capability)
    asker = Asker("status", keys)
    return all(
        asker.ask(endpoint, decline, timeout_ms) is not None for endpoint in read.source.endpoints
    )


def _main(arguments: list[str]) -> None:
    if len(arguments) < 2:
        sys.exit("usage: python -m baton.integrations.vllm.status MEMBER_FILE tcp://HOST:PORT...")
    try:
        keys = load_member(arguments[0])
    except ConfigError as error:
        sys.exit(str(error))
    found = [ask_status(endpoint, keys) for endpoint in arguments[1:]]
    for endpoint, status in zip(arguments[1:], found, strict=True):
        print(msgspec.json.encode(status).decode() if status else f"{endpoint}: no answer")
    sys.exit(0 if all(found) else 1)


if __name__ == "__main__":
    _main(sys.argv[1:])
