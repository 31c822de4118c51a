"""The data plane's own promises: what quiet means, what is summed, whose word is a landed chunk."""

from tests.mutants.mutant import ByTests, Mutant

_LEDGER = "runtime/dataplane/ledger.py"
_FLIGHT = "runtime/dataplane/nixl/flight.py"
_TESTS = "tests/runtime/dataplane"


def _seen_by(*tests: str) -> ByTests:
    return ByTests(tuple(f"{_TESTS}/{test}" for test in tests))


MUTANTS = (
    Mutant(
        name="lingering-counts-as-quiet",
        file=_LEDGER,
        line="if reservation_id not in self._quiescing "
        "or reservation_id in self._lingering.values():",
        planted="if reservation_id not in self._quiescing:",
        why="Blocks leave quarantine while a transfer that timed out still writes into them.",
        killer=_seen_by(
            "test_linger.py"
            "::test_a_lingering_order_ends_at_once_and_keeps_its_reservation_from_being_quiet"
        ),
    ),
    Mutant(
        name="settled-says-nothing",
        file=_LEDGER,
        line="self._try_quiesce(self._lingering.pop(handle))",
        planted="self._lingering.pop(handle)",
        why="A transfer that has ended keeps its blocks in quarantine for ever.",
        killer=_seen_by("test_linger.py::test_quiet_is_when_the_last_of_several_has_settled"),
    ),
    Mutant(
        name="posts-after-a-stop",
        file=_FLIGHT,
        line="if not self._pieces or not may_post:",
        planted="if not self._pieces:",
        why="An aborted order goes on writing, piece after piece.",
        killer=_seen_by(
            "test_flight.py"
            "::test_a_stop_keeps_further_pieces_back_and_waits_for_the_one_that_is_posted"
        ),
    ),
    Mutant(
        name="write-is-summed-when-it-has-landed",
        file=_FLIGHT,
        line='if self.order.direction == "read":',
        planted="if True:",
        why="A block that is overwritten while it moves is summed as the destination has it.",
        killer=_seen_by("test_flight.py::test_a_write_is_summed_before_its_piece_is_posted"),
    ),
    Mutant(
        name="any-token-notifies",
        file="runtime/dataplane/nixl/notes.py",
        line="if not secrets.compare_digest(note[:TOKEN_NBYTES], token):",
        planted="if False:",
        why="Whoever reaches the agent's socket says that chunks have landed.",
        killer=_seen_by("test_nixl_notes.py::test_bad_notes_are_refused"),
    ),
    Mutant(
        name="torn-record-counts",
        file="runtime/dataplane/nixl/notes.py",
        line="if len(records) % _RECORD.size or len(records) > RECORDS_PER_NOTE * _RECORD.size:",
        planted="if len(records) > RECORDS_PER_NOTE * _RECORD.size:",
        why="A torn note ends the thread that owns the agent.",
        killer=_seen_by("test_nixl_notes.py::test_bad_notes_are_refused"),
    ),
)
