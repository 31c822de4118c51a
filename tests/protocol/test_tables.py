"""The four state tables over their whole state x input product."""

from itertools import product

import pytest

from baton.core.machine import IllegalTransition, Machine, Table
from baton.errors import LocalProtocolError
from baton.protocol.chunk import CHUNK, ChunkInput, ChunkState
from baton.protocol.copy import HISTORY_COPY, HistoryCopyState
from baton.protocol.request import REQUEST, RequestInput, RequestState
from baton.protocol.source_copy import SOURCE_COPY, CopyInput, CopyState
from baton.protocol.transfer import TRANSFER, TransferInput, TransferState

TABLES = [TRANSFER, CHUNK, SOURCE_COPY, REQUEST, HISTORY_COPY]
PAIRS = [
    pytest.param(table, state, given, id=f"{table.name}-{state}-{given}")
    for table in TABLES
    for state, given in product(table.states, table.inputs)
]
TERMINAL = {
    "transfer": {TransferState.PUBLISHED, TransferState.ABORTED, TransferState.REJECTED},
    "chunk": {ChunkState.DEVICE_VISIBLE, ChunkState.CANCELLED},
    "source copy": {CopyState.RELEASED, CopyState.FREED},
    "history copy": {HistoryCopyState.INSERTED, HistoryCopyState.GIVEN_UP},
    "request": {
        RequestState.FINISHED,
        RequestState.CANCELLED,
        RequestState.FAILED,
        RequestState.REJECTED,
    },
}


def path(table: Table, *inputs) -> list[str]:
    """States passed when `inputs` are fed in order."""
    machine = Machine(table)
    return [str(machine.state)] + [str(machine.feed(given)) for given in inputs]


def reachable(table: Table) -> set:
    found, frontier = {table.initial}, [table.initial]
    while frontier:
        state = frontier.pop()
        for (origin, _), target in table.rows.items():
            if origin is state and target not in found:
                found.add(target)
                frontier.append(target)
    return found


@pytest.mark.parametrize(("table", "state", "given"), PAIRS)
def test_every_pair_moves_by_the_table_or_raises_and_changes_nothing(table, state, given):
    machine = Machine(table)
    machine.state = state
    if (state, given) in table.rows:
        assert table.allows(state, given)
        assert machine.feed(given) is table.rows[state, given] is machine.state
    else:
        assert not table.allows(state, given)
        with pytest.raises(IllegalTransition, match=f"{table.name}: .* is not allowed in {state}"):
            machine.feed(given)
        assert machine.state is state


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_state_is_reachable_and_every_input_is_used(table):
    assert reachable(table) == set(table.states)
    assert {given for _, given in table.rows} == set(table.inputs)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_terminal_states_are_exactly_those_of_the_specification(table):
    assert table.terminal == TERMINAL[table.name]
    for state in table.states:
        machine = Machine(table)
        machine.state = state
        assert machine.ended == (state in TERMINAL[table.name])


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_an_end_is_reachable_from_everywhere(table):
    for state in table.states:
        assert reachable(Table(table.name, state, table.rows)) & table.terminal


def test_an_illegal_input_is_our_own_error():
    assert issubclass(IllegalTransition, LocalProtocolError)


def test_request_level_transaction_of_0x06a():
    i = TransferInput
    assert path(TRANSFER, i.RESERVE, i.START, i.VALIDATE, i.PUBLISH) == [
        "PLANNED",
        "RESERVED",
        "TRANSFERRING",
        "VALIDATED",
        "PUBLISHED",
    ]
    abortable = {state for state, given in TRANSFER.rows if given is i.ABORT}
    assert abortable == {
        TransferState.RESERVED,
        TransferState.TRANSFERRING,
        TransferState.VALIDATED,
    }


def test_published_has_no_way_out_and_cannot_be_aborted():
    assert not [pair for pair in TRANSFER.rows if pair[0] is TransferState.PUBLISHED]
    machine = Machine(TRANSFER)
    for given in (TransferInput.RESERVE, TransferInput.START):
        machine.feed(given)
    machine.feed(TransferInput.VALIDATE)
    machine.feed(TransferInput.PUBLISH)
    with pytest.raises(IllegalTransition):
        machine.feed(TransferInput.ABORT)
    assert machine.state is TransferState.PUBLISHED


def test_an_abort_always_passes_through_aborting_and_ends_only_by_quiescence():
    into = {state for state, given in TRANSFER.rows if TRANSFER.rows[state, given] == "ABORTED"}
    assert into == {TransferState.ABORTING}
    out = {given for state, given in TRANSFER.rows if state is TransferState.ABORTING}
    assert out == {TransferInput.QUIESCE}


def test_publication_is_only_reached_from_validated():
    into = {state for (state, _), target in TRANSFER.rows.items() if target == "PUBLISHED"}
    assert into == {TransferState.VALIDATED}


def test_chunk_chain_of_0x06a():
    i = ChunkInput
    assert path(CHUNK, i.ACQUIRE, i.SEND, i.RECEIVE, i.SEE) == [
        "DECLARED",
        "CREDIT_ACQUIRED",
        "SENT",
        "RECEIVED",
        "DEVICE_VISIBLE",
    ]
    assert CHUNK.terminal == {ChunkState.DEVICE_VISIBLE, ChunkState.CANCELLED}
    for state in set(ChunkState) - CHUNK.terminal:
        assert CHUNK.next(state, i.CANCEL) is ChunkState.CANCELLED


def test_a_copy_is_released_only_when_held_and_freed_only_after_a_fence():
    moves = {(state, target) for (state, _), target in SOURCE_COPY.rows.items()}
    ends = {(state, target) for state, target in moves if target in SOURCE_COPY.terminal}
    assert ends == {(CopyState.HELD, CopyState.RELEASED), (CopyState.FENCING, CopyState.FREED)}
    assert not SOURCE_COPY.allows(CopyState.COMPUTING, CopyInput.RELEASE)


def test_a_request_retries_from_every_state_of_an_attempt_and_only_there():
    retrying = {state for state, given in REQUEST.rows if given is RequestInput.RETRY}
    assert retrying == {RequestState.RESERVING, RequestState.PREFILLING, RequestState.DECODING}
    assert path(REQUEST, RequestInput.REJECT)[-1] == "REJECTED", "before any compute"
    assert not REQUEST.allows(RequestState.PREFILLING, RequestInput.REJECT)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_diagram_shows_every_row_and_end_once(table):
    lines = table.mermaid().splitlines()
    assert lines[:2] == ["stateDiagram-v2", f"    [*] --> {table.initial}"]
    for (state, given), target in table.rows.items():
        assert lines.count(f"    {state} --> {target}: {given}") == 1
    ends = [line for line in lines if line.endswith("--> [*]")]
    assert len(lines) == 2 + len(table.rows) + len(ends)
    assert len(ends) == len(table.terminal)
