"""A life that was given up and runs on: who may say that it is quiet, and who hears it."""

from tests.mutants.mutant import ByTests, Mutant, Vopr


def _seen_by(*tests: str) -> ByTests:
    return ByTests(tuple(f"tests/nodes/test_given_up.py::{test}" for test in tests))


MUTANTS = (
    Mutant(
        name="given-up-counts-as-quiet",
        file="nodes/destination_aborts.py",
        line="quiet = ended or not incoming.is_writable",
        planted="quiet = True",
        why="A source that nobody can reach writes into blocks that are somebody else's by then.",
        killer=Vopr(("writes-are-owned",), seeds=(26,)),
    ),
    Mutant(
        name="newer-life-proves-the-end",
        file="nodes/peers.py",
        line="self.on_down(known.worker_id, known.epoch, ended=False)",
        planted="self.on_down(known.worker_id, known.epoch, ended=True)",
        why="A life that was started elsewhere ends the quarantine of one that still runs.",
        killer=_seen_by(
            "test_a_newer_life_ends_no_quarantine_where_nothing_was_heard_of_the_older_ones_end"
        ),
    ),
    Mutant(
        name="router-takes-loss-for-death",
        file="nodes/router.py",
        line="ended = self.fleet.has_ended(worker_id, epoch)",
        planted="ended = True",
        why="The router says of a process that it is dead, and only knows that it is silent.",
        killer=_seen_by(
            "test_the_request_goes_on_elsewhere_at_once_and_the_late_write_lands_in_quarantine"
        ),
    ),
    Mutant(
        name="end-is-said-once",
        file="nodes/router.py",
        line="if self.fleet.has_ended(peer_id, epoch):",
        planted="if False:",
        why="One lost word keeps blocks in quarantine for ever.",
        killer=_seen_by("test_the_word_that_it_has_ended_is_said_again_when_it_was_lost"),
    ),
    Mutant(
        name="given-up-is-not-heard",
        file="nodes/worker.py",
        line="elif isinstance(message, messages.TransferQuiesced):",
        planted="elif False:",
        why="A source that came back into reach is quiet, and its blocks stay in quarantine.",
        killer=_seen_by("test_its_own_word_that_it_is_quiet_ends_the_quarantine"),
    ),
    Mutant(
        name="waits-for-a-source-out-of-reach",
        file="nodes/router.py",
        line="if not ended and record.state in _UNPUBLISHED:",
        planted="if False:",
        why="A request waits until a partition heals, although another worker could serve it.",
        killer=_seen_by(
            "test_the_request_goes_on_elsewhere_at_once_and_the_late_write_lands_in_quarantine"
        ),
    ),
)
