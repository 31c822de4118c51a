"""What a child prints, however long, does not stop its supervisor; a slot lost is said aloud."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from tests.nodes.joining import info

from baton.config import load_config
from baton.nodes.fleet import Fleet
from baton.runtime import supervisor as supervising
from baton.runtime.channel import ControlChannel, ipc_endpoint
from baton.runtime.dataplane.segments import SHM_DIR
from baton.runtime.issuer_key import mint_signer, published
from baton.runtime.launch import LifeLost, LocalLauncher
from baton.runtime.lines import LINE_NBYTES_MAX, read_lines
from baton.runtime.router_door import RouterDoor
from baton.runtime.supervisor import Supervisor

SECONDS = 10.0
CHILD = f"""
import sys
sys.stdout.write("a\\n" + "x" * {3 * LINE_NBYTES_MAX} + "\\n" + "b" * 200_000 + "\\nc\\n")
"""


async def test_an_over_long_line_is_left_out_and_the_next_ones_are_read():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, stdout=PIPE, limit=LINE_NBYTES_MAX
    )
    async with asyncio.timeout(SECONDS):
        lines = [line async for line in read_lines(process.stdout)]
        assert await process.wait() == 0
    whole = [line for line in lines if not line.startswith(b"x")]
    assert whole == [b"a\n", b"b" * 200_000 + b"\n", b"c\n"]
    assert all(len(line) <= LINE_NBYTES_MAX for line in lines)


@pytest.fixture
async def supervise(tmp_path, monkeypatch):
    inbox = ControlChannel("router", 0, ipc_endpoint(tmp_path, "router"))
    made = []

    def make(program: str, on_lost) -> Supervisor:
        """A supervisor whose workers are this shell program."""
        path = tmp_path / "worker"
        path.write_text(f"#!/bin/sh\n{program}\n")
        os.chmod(path, 0o700)
        monkeypatch.setattr(sys, "executable", str(path))
        config = load_config(None, ["model.name=tiny"])
        supervisor = Supervisor(
            config,
            LocalLauncher(config, Path("nowhere")),
            tmp_path,
            on_lost,
            door=RouterDoor(endpoint=inbox.endpoint, key=b"", admit=inbox.admit),
            issuer=published(mint_signer()),
        )
        made.append(supervisor)
        return supervisor

    yield make
    for supervisor in made:
        await supervisor.stop()
    inbox.close()


async def test_a_worker_that_printed_a_long_line_is_still_restarted(supervise):
    lost = asyncio.Queue[tuple[str, int]]()
    supervisor = supervise(
        f"head -c {3 * LINE_NBYTES_MAX} /dev/zero | tr '\\0' x; echo; exit 9",
        lambda worker_id, epoch, ended: lost.put_nowait((worker_id, epoch)),
    )
    supervisor.start()
    first = supervisor.workers[0].worker_id
    async with asyncio.timeout(SECONDS):
        while await lost.get() != (first, 2):
            pass
    assert not supervisor.failure.done()


async def test_a_report_of_nested_arrays_is_passed_over(supervise):
    lost = asyncio.Queue[int]()
    nested = "head -c 100000 /dev/zero | tr '\\0' '['"
    supervisor = supervise(
        f"printf '{{\"x\":'; {nested}; echo; exit 9",
        lambda worker_id, epoch, ended: lost.put_nowait(epoch),
    )
    supervisor.start()
    assert await asyncio.wait_for(lost.get(), SECONDS) == 1
    assert not supervisor.failure.done()


LOADING = 'echo \'{"stage":"loading","fraction":0.5}\''
READY = 'echo \'{"stage":"ready","report":"exact"}\''


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("exit 9", "exit 9; it said nothing."),
        (f"{LOADING}; exit 9", "exit 9; it said last: loading."),
        (
            f'{LOADING}; echo \'{{"error":"MemoryError()"}}\'; exit 1',
            "exit 1; it said last: MemoryError().",
        ),
        ("kill -9 $$", "signal 9 (Killed); it said nothing; the kernel may have run out of memory"),
    ],
)
async def test_a_worker_that_never_comes_up_is_given_up_after_three_lives(supervise, program, said):
    lost = []
    supervisor = supervise(program, lambda worker_id, epoch, ended: lost.append((worker_id, epoch)))
    supervisor.start()
    reason = await asyncio.wait_for(supervisor.failure, SECONDS)
    first = reason.split()[0]
    assert (
        f"{first} ended 3 times without ever having been ready, the last time with {said}" in reason
    )
    assert [epoch for worker_id, epoch in lost if worker_id == first] == [1, 2, 3]


async def test_a_worker_that_was_ready_once_is_restarted_more_often(supervise, tmp_path):
    """Only its first life is ready here; the count begins with none that ever was."""
    lost = asyncio.Queue[tuple[str, int]]()
    once = tmp_path / "once"
    supervisor = supervise(
        f"mkdir {once} 2>/dev/null && {READY}; exit 9",
        lambda worker_id, epoch, ended: lost.put_nowait((worker_id, epoch)),
    )
    del supervisor.workers[1:]
    supervisor.start()
    async with asyncio.timeout(SECONDS):
        while (await lost.get())[1] != 4:
            pass
    assert not supervisor.failure.done()


async def test_a_process_that_cannot_start_is_no_vain_start(supervise):
    lost = asyncio.Queue[tuple[str, int]]()
    supervisor = supervise(
        "exit 9", lambda worker_id, epoch, ended: lost.put_nowait((worker_id, epoch))
    )
    Path(sys.executable).unlink()
    del supervisor.workers[1:]
    supervisor.start()
    async with asyncio.timeout(SECONDS):
        while (await lost.get())[1] != 4:
            pass
    assert not supervisor.failure.done()


async def test_a_slot_that_is_not_kept_any_more_fails_the_deployment(supervise):
    def bug(worker_id: str, epoch: int, ended: bool) -> None:
        raise KeyError(worker_id)

    supervisor = supervise("exit 9", bug)
    supervisor.start()
    reason = await asyncio.wait_for(supervisor.failure, SECONDS)
    assert "is not restarted any more: KeyError" in reason


class OutOfReach:
    """Lives of this host of which nothing is heard from their first line on."""

    def __init__(self, launcher: LocalLauncher) -> None:
        self._launcher = launcher
        self.sweep = launcher.sweep
        self.lives = []
        self.are_reachable = asyncio.Event()

    async def take_site(self, ordinal):
        site = await self._launcher.take_site(ordinal)
        start = site.start

        async def begin(spec):
            life = await start(spec)
            self.lives.append(life)
            life.lines, end = self._lines, life.prove_end

            async def prove_end():
                await self.are_reachable.wait()
                return await end()

            life.prove_end = prove_end
            return life

        site.start = begin
        return site

    async def _lines(self):
        raise LifeLost("nothing is heard of it")
        yield b""


async def test_a_life_that_was_lost_is_over_at_once_and_dead_when_that_is_proven(supervise):
    lost = asyncio.Queue[tuple[int, bool]]()
    supervisor = supervise("exec sleep 60", lambda _, epoch, ended: lost.put_nowait((epoch, ended)))
    del supervisor.workers[1:]
    launcher = supervisor._launcher = OutOfReach(supervisor._launcher)
    supervisor.start()
    async with asyncio.timeout(SECONDS):
        assert [await lost.get(), await lost.get()] == [(1, False), (2, False)]
        launcher.lives[0].kill()
        assert await lost.get() != (1, True), "it is dead, but who could know?"
        launcher.are_reachable.set()
        while (told := await lost.get()) != (1, True):
            assert told[1] is False, "this one lives"
        await supervisor.stop()
        for life in launcher.lives:
            life.kill()
            await life.wait()


async def test_a_worker_that_is_removed_while_it_may_not_start_never_starts(supervise, tmp_path):
    starts = tmp_path / "starts"
    lost = asyncio.Queue[int]()
    supervisor = supervise(
        f"echo x >> {starts}; {READY}; exit 9", lambda _, epoch, ended: lost.put_nowait(epoch)
    )
    del supervisor.workers[1:]
    supervisor.start()
    async with asyncio.timeout(SECONDS):
        while await lost.get() != 3:  # it waits for a second now
            pass
        await supervisor.remove(supervisor.workers[0].worker_id)
    assert supervisor.workers == [] and not supervisor.failure.done()
    count = starts.read_text()
    await asyncio.sleep(1.2)
    assert starts.read_text() == count and lost.empty()


SEGMENT = f"""
( while kill -0 $$; do sleep 0.05; done; sleep 0.3 ) >/dev/null 2>&1 <&- &
start=$(cut -d' ' -f22 /proc/$!/stat)
: > {SHM_DIR}/baton-$!-$start-$(stat -L -c %i /proc/self/ns/pid)-stage-{"f" * 32}
{READY}
exec sleep 60
"""
"""A worker that does not stop, and a stage process of it that ends a little after it."""


async def test_what_a_killed_worker_leaves_is_swept_on_the_last_stop(
    supervise, monkeypatch, capsys
):
    monkeypatch.setattr(supervising, "_STOP_TIMEOUT_S", 0.3)
    supervisor = supervise(SEGMENT, lambda *_: None)
    del supervisor.workers[1:]
    supervisor.start()
    own = f"baton-*-stage-{'f' * 32}"
    async with asyncio.timeout(SECONDS):
        while not list(SHM_DIR.glob(own)):
            await asyncio.sleep(0.02)
        while supervisor.workers[0].report.stage != "ready":
            await asyncio.sleep(0.02)
        await supervisor.stop()
    assert list(SHM_DIR.glob(own)) == []
    assert "did not stop within 0.3 s and is killed" in capsys.readouterr().err


async def test_a_kill_by_baton_says_why_and_does_not_read_like_one_of_the_kernel(supervise, capsys):
    lost = asyncio.Queue[int]()
    supervisor = supervise(
        f"{READY}; exec sleep 60", lambda _, epoch, ended: lost.put_nowait(epoch)
    )
    del supervisor.workers[1:]
    supervisor.start()
    first = supervisor.workers[0]
    fleet = Fleet(timeout_us=5_000_000, batch_timeout_us=9_000_000)
    fleet.join(info(first.worker_id), 0)
    assert fleet.unresponsive(10_000_000) == {}
    async with asyncio.timeout(SECONDS):
        while first.report.stage != "ready":
            await asyncio.sleep(0.02)
        for worker_id, reason in fleet.unresponsive(10_000_001).items():
            supervisor.kill(worker_id, reason)
        assert await lost.get() == 1
        while first.epoch == 1:
            await asyncio.sleep(0.02)
    assert (
        f"{first.worker_id}: epoch 1 was silent for more than 10 s (2 x router.worker_timeout_ms) "
        "and was killed by Baton; it restarts as epoch 2"
    ) in capsys.readouterr().err
    assert first.killed_for == ""
