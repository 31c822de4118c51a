"""The exhaustive model: small spaces are exhausted, planted bugs found, reductions sound."""

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from baton.cli import app
from baton.core.ids import Direction
from baton.core.messages import CreditReturn, SourceRelease
from baton.nodes.destination_aborts import DestinationAborts
from baton.nodes.destination_side import DestinationSide
from baton.nodes.source_job import SourceJob
from baton.nodes.source_side import SourceSide
from baton.nodes.worker import Worker
from baton.protocol.credits import CreditWindow
from baton.protocol.destination import DestinationTransfer
from baton.protocol.source import SourceTransfer
from baton.sim.explore.model import Model
from baton.sim.explore.report import lines
from baton.sim.explore.search import Result, Search
from baton.sim.explore.setup import Setup

NOTHING = {"num_crashes": 0, "num_duplicates": 0, "num_drops": 0}
NOTHING |= {"num_retries": 0, "num_cancels": 0}


def search(model: Model, max_states: int = 200_000) -> Result:
    return Search(model, max_states=max_states, max_seconds=300).run()


def small(**budgets) -> Setup:
    return Setup(num_requests=1, **{**NOTHING, **budgets})


def story(model: Model, result: Result) -> str:
    return "\n".join(lines(result, model))


# -- exhausted spaces ------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("fault", ["num_duplicates", "num_drops", "num_retries"])
def test_one_request_with_one_fault_is_exhausted(direction, fault):
    model = Model(small(direction=direction, **{fault: 1}))
    result = search(model)
    assert result.exhausted, story(model, result)
    assert set(result.ends) == {"finished"} and result.num_states > 300


def test_two_requests_without_faults_are_exhausted():
    model = Model(Setup(**NOTHING))
    result = search(model)
    assert result.exhausted, story(model, result)
    assert set(result.ends) == {"finished, finished"} and result.num_states > 3000


@pytest.mark.parametrize("direction", list(Direction))
def test_one_request_that_is_cancelled_is_exhausted(direction):
    model = Model(small(direction=direction, num_cancels=1))
    result = search(model)
    assert result.exhausted, story(model, result)
    assert set(result.ends) == {"finished", "cancelled"}


@pytest.mark.parametrize("direction", list(Direction))
def test_one_request_with_one_crash_is_exhausted(direction):
    model = Model(small(direction=direction, num_crashes=1))
    result = search(model)
    assert result.exhausted, story(model, result)
    assert set(result.ends) == {"finished"} and result.num_states > 5000


@pytest.mark.slow
@pytest.mark.parametrize("direction", list(Direction))
def test_one_request_with_a_worker_that_is_given_up_is_exhausted(direction):
    model = Model(small(direction=direction, num_give_ups=1))
    result = search(model, 400_000)
    assert result.exhausted, story(model, result)
    assert set(result.ends) == {"finished"} and result.num_states > 100_000


# -- the method itself -----------------------------------------------------------------------------


def test_two_searches_reach_the_same_space():
    first, second = (search(Model(small(num_drops=1, num_duplicates=1))) for _ in range(2))
    assert (first.num_states, first.num_transitions) == (second.num_states, second.num_transitions)
    assert first.depth == second.depth and first.ends == second.ends


def test_equal_fingerprints_act_alike():
    model = Model(small(num_crashes=1, num_duplicates=1, num_drops=1, num_retries=1), 10)
    result = search(model, max_states=4000)
    assert result.counterexample is None, story(model, result)
    assert result.num_checks > 100


@pytest.mark.parametrize("fault", ["num_crashes", "num_drops", "num_cancels"])
def test_the_reductions_lose_no_node_state_and_no_end(fault):
    whole, reduced = (Model(small(**{fault: 1}), reduce=reduce) for reduce in (False, True))
    all_states, fewer_states = search(whole), search(reduced)
    assert all_states.exhausted and fewer_states.exhausted
    assert fewer_states.num_states < all_states.num_states
    assert fewer_states.ends == all_states.ends
    for one, other in zip(whole.processes, reduced.processes, strict=True):
        assert one.nodes.fingerprints == other.nodes.fingerprints


def test_a_limit_is_not_called_exhaustion():
    model = Model(Setup())
    result = search(model, max_states=100)
    assert not result.exhausted and "NOT exhausted" in story(model, result)


# -- planted bugs ----------------------------------------------------------------------------------


def return_credit_at_receive(patch: pytest.MonkeyPatch) -> None:
    receive = DestinationSide._receive

    def early(self, incoming, chunk_id, nbytes, checksum):
        receive(self, incoming, chunk_id, nbytes, checksum)
        fence = incoming.fence
        message = CreditReturn(fence=fence, chunk_ids=(chunk_id,))
        self._context.send(fence.source_id, message)

    patch.setattr(DestinationSide, "_receive", early)


def publish_before_all_is_visible(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DestinationTransfer, "all_visible", True)
    patch.setattr(DestinationTransfer, "defect", lambda self: "")


def ignore_the_credit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CreditWindow, "try_acquire", lambda self, nbytes: True)
    patch.setattr(CreditWindow, "release", lambda self, nbytes: None)


def release_the_source_at_the_seal(patch: pytest.MonkeyPatch) -> None:
    on_seal = DestinationSide.on_seal

    def early(self, message):
        self._context.send(message.fence.source_id, SourceRelease(fence=message.fence))
        on_seal(self, message)

    patch.setattr(DestinationSide, "on_seal", early)


def send_before_rows_are_final(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SourceTransfer, "_is_ready", lambda self, spec: True)
    patch.setattr(DestinationTransfer, "defect", lambda self: "")


def free_blocks_without_waiting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DestinationTransfer, "quiesced", True)


def free_blocks_before_the_source_is_quiet(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DestinationTransfer, "quiesced", property(lambda self: self.local_quiesced))


def forget_to_repeat_the_seal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SourceSide, "on_tick", lambda self: None)


def move_without_a_right(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SourceJob, "__init__", _authorized_from_the_start(SourceJob.__init__))


def _authorized_from_the_start(init: Callable[..., None]) -> Callable[..., None]:
    def begin(self, *given, **named):
        init(self, *given, **named)
        self.is_authorized = True

    return begin


def take_the_lost_for_dead(patch: pytest.MonkeyPatch) -> None:
    lost = DestinationAborts.on_peer_lost

    def on_peer_lost(self, worker_id, epoch, *, ended):
        lost(self, worker_id, epoch, ended=True)

    patch.setattr(DestinationAborts, "on_peer_lost", on_peer_lost)


def let_both_lives_be_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Worker, "_fence_holds", lambda self, fence, envelope: True)


@pytest.mark.parametrize(
    ("plant", "budgets", "text"),
    [
        (return_credit_at_receive, {}, "returned before they are visible"),
        (publish_before_all_is_visible, {}, "is published with only chunks"),
        (send_before_rows_are_final, {}, "published with wrong rows"),
        (ignore_the_credit, {}, "bytes in flight"),
        (release_the_source_at_the_seal, {}, "released before publication"),
        (
            free_blocks_without_waiting,
            {"num_crashes": 1},
            "while the plane of decode-1 works on it",
        ),
        (free_blocks_before_the_source_is_quiet, {"num_cancels": 1}, "while its source writes"),
        (forget_to_repeat_the_seal, {"num_drops": 1}, "prefill-0 has 1 used blocks"),
        (take_the_lost_for_dead, {"num_give_ups": 1}, "while a lost source may write"),
        (let_both_lives_be_one, {"num_crashes": 1}, "a stale message has an effect: Prefill"),
    ],
)
def test_a_planted_bug_is_found_with_the_way_to_it(
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    budgets: dict[str, int],
    text: str,
):
    plant(monkeypatch)
    model = Model(small(**budgets))
    result = search(model)
    assert result.counterexample is not None
    assert text in result.counterexample.text
    told = story(model, result)
    assert told.count("BROKEN: " + result.counterexample.text) == 2
    assert "  1. router -> decode-1 brings Reserve r0.1" in told


# -- the command -----------------------------------------------------------------------------------


def test_the_command_says_what_it_explored():
    arguments = ["explore", "--requests", "1", "--faults", "0", "--direction", "push"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "exhausted: every interleaving was explored" in done.output


def test_the_command_tells_a_limit_from_exhaustion():
    arguments = ["explore", "--requests", "1", "--max-states", "10", "--direction", "pull"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 3 and "NOT exhausted" in done.output


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--requests", "9"), ("--crashes", "7"), ("--give-ups", "2"), ("--direction", "up")],
)
def test_a_wrong_flag_is_named(flag, value):
    done = CliRunner().invoke(app, ["explore", flag, value])
    assert flag in str(done.exception) and value in str(done.exception)
