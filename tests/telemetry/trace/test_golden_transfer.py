"""The specification's 8 MiB transfer (0x0F): 220 us of wall, 74 of overlap, 60 exposed, one retry.

The link of the fixture was never measured; its numbers test states and units.
"""

from pathlib import Path

import msgspec
import pytest

from baton.telemetry.trace.event import TraceEvent
from baton.telemetry.trace.phases import Phase
from baton.telemetry.trace.reading import files_at, read_trace
from baton.telemetry.trace.story import tell
from baton.telemetry.trace.work import Activity, fold_work
from tests.telemetry.trace.simulated import read

FIXTURE = Path(__file__).parent / "transfer_8mib.jsonl"


@pytest.fixture
def events() -> list[TraceEvent]:
    trace = read_trace(files_at(FIXTURE))
    assert (trace.violations, trace.check()) == ([], {})
    return trace.by_request["c9"]


def test_work_wall_overlap_retries_and_exposed_stall(events):
    work = fold_work(events, 1)
    assert (work.work_us, work.wall_us, work.overlap_us) == (294, 220, 74)
    assert (work.exposed_us, work.num_retries) == (60, 1)
    assert work.by_activity() == {
        Activity.REGISTER: 20,
        Activity.COMPUTE: 80,
        Activity.NETWORK: 110,
        Activity.SETTLE: 68,
        Activity.PUBLISH: 16,
    }


def test_both_byte_ledgers(events):
    ledger = tell(events).ledger
    assert (ledger.logical_nbytes, ledger.physical_nbytes) == (8 << 20, 8 << 20)


def test_a_stall_is_exposed_only_from_when_decode_was_ready(events):
    """Storage that is held late makes the stall shorter, and never negative."""
    late = [msgspec.structs.replace(e, at_us=215) if e.name == "reserved" else e for e in events]
    assert fold_work(late, 1).exposed_us == 5
    never = [
        msgspec.structs.replace(e, at_us=300) if e.name == "prefill_done" else e for e in events
    ]
    assert fold_work(never, 1).exposed_us == 0


@pytest.mark.parametrize("layer", [0, 1])
def test_a_layer_that_is_not_visible_before_publication_breaks_the_contract(events, layer):
    lacking = [e for e in events if e.data.get("layer_start") != layer]
    ((found,),) = read(lacking).check().values()
    assert "1 of 2 chunks were visible" in str(found)
    late = [
        msgspec.structs.replace(e, at_us=230) if e.data.get("layer_start") == layer else e
        for e in events
    ]
    ((found,),) = read(sorted(late, key=lambda e: e.at_us)).check().values()
    assert str(found).startswith("reordered: `published` at decode-1 of c9 generation 1 (220 us)")


def test_the_open_request_is_told_as_such(events):
    story = tell(events)
    assert (story.state, story.tiling, story.ttft_us) == ("open", None, 0)
    ended = TraceEvent(
        at_us=300,
        place="router",
        name="ended",
        request_id="c9",
        generation=1,
        data={"state": "FAILED"},
    )
    tiling = tell([*events, ended]).tiling
    assert tiling.total_us == 300 and not tiling.is_answered
    assert tiling.of(Phase.TRANSFER) == 44 and tiling.of(Phase.PUBLISH) == 16
    assert tiling.of(Phase.ADMISSION) == 80
