"""Which worker may go, and what it still has to do: the router's own books, and no guess."""

import pytest

from baton.core.events import WorkerDraining
from baton.core.ids import Role
from baton.nodes.draining import drain_refusal, outstanding
from tests.stage import Stage, uneven_plan


def staged(*roles: str) -> Stage:
    stage = Stage(uneven_plan(*roles))
    stage.submit("warm", 20, max_tokens=2)
    stage.serve()
    return stage


def drain(stage: Stage, worker_id: str) -> None:
    epoch = stage.world.workers[worker_id].epoch
    stage.world.feed_router(WorkerDraining(worker_id=worker_id, epoch=epoch))


@pytest.mark.parametrize(
    ("roles", "worker_id", "role"),
    [
        (("prefill", "decode"), "prefill-0", "prefill"),
        (("prefill", "decode", "decode"), "prefill-0", "prefill"),
        (("prefill", "prefill", "decode"), "decode-2", "decode"),
        (("mixed",), "mixed-0", "mixed"),
    ],
)
def test_the_last_of_its_role_stays(roles, worker_id, role):
    stage = staged(*roles)
    assert f"{worker_id} is the last {role} worker" in drain_refusal(stage.world.router, worker_id)


def test_one_of_two_may_go_and_then_the_other_may_not():
    stage = staged("prefill", "decode", "decode")
    router = stage.world.router
    assert drain_refusal(router, "decode-1") == ""
    drain(stage, "decode-1")
    assert "drained already" in drain_refusal(router, "decode-1")
    assert "last decode worker" in drain_refusal(router, "decode-2")
    assert "not up; the live ones are" in drain_refusal(router, "decode-9")


def test_a_mixed_worker_lets_every_other_one_go():
    stage = staged("prefill", "decode", "mixed")
    assert drain_refusal(stage.world.router, "prefill-0") == ""
    assert drain_refusal(stage.world.router, "decode-1") == ""


def test_both_sides_of_an_open_handoff_have_something_to_do_until_it_is_over():
    stage = staged("prefill", "decode")
    stage.submit("r", 20, max_tokens=30)
    stage.until(lambda: stage.traced("access_granted"))
    router, workers = stage.world.router, stage.world.workers
    for worker_id in ("prefill-0", "decode-1"):
        assert "request r" in outstanding(router, worker_id, workers[worker_id].epoch)
        assert outstanding(router, worker_id, workers[worker_id].epoch + 1) == []
    stage.serve()
    stage.run_for(3_000_000)
    for worker_id in ("prefill-0", "decode-1"):
        assert outstanding(router, worker_id, workers[worker_id].epoch) == []


def test_one_that_is_down_may_go_where_others_serve():
    router = staged("prefill", "decode").world.router
    assert "'decode-9' is not up" in drain_refusal(router, "decode-9")
    assert drain_refusal(router, "decode-9", Role.DECODE) == ""
    alone = staged("mixed", "prefill")
    drain(alone, "mixed-0")
    refusal = drain_refusal(alone.world.router, "decode-9", Role.DECODE)
    assert refusal.startswith("decode-9 is the last decode worker")
