"""Protocol stories: a small command language over a world, and a transcript that it writes.

A story is a text file. A line that starts with `#` is a comment, one that starts with `>` is a
command; what stands below a command is what happened, and `play` writes it anew.
"""

from collections.abc import Callable

from baton.core.delivery import Tokens
from baton.core.ids import Role
from baton.core.request import Request, SamplingParams
from baton.errors import BatonError
from baton.nodes.source_job import SourceJob
from baton.sim.checks import all_checkers
from baton.sim.checks.leaks import leftovers
from baton.sim.faults import ChunkFault, EngineFault, Partition, Revoke, Scheduled, Slow, Stall
from baton.sim.observer import Violation
from baton.sim.plan import Arrival
from baton.sim.scene import OPTIONS, calm_plan
from baton.sim.tampering import ALWAYS, KINDS, Rule, Tampering
from baton.sim.telling import Teller
from baton.sim.worker import SimWorker
from baton.sim.world import World

_LIMIT_US = 300_000_000
_SETTLE_US = 2_000
_TIMES = {"us": 1, "ms": 1_000, "s": 1_000_000}
USAGE = {
    "world": f"world NAME=VALUE ..., with {', '.join(OPTIONS)}",
    "submit": "submit ID [prompt=LENGTH] [first=TOKEN] [max_tokens=N] [tenant=T] [salt=S] [seed=N]",
    "drop": "drop MESSAGE [COUNT|always] [from=A] [to=B] [request=ID]",
    "duplicate": "duplicate MESSAGE [COUNT|always] [from=A] [to=B] [request=ID] [after=1ms]",
    "hold": "hold MESSAGE [COUNT|always] [from=A] [to=B] [request=ID]",
    "release": "release [MESSAGE]",
    "forge": "forge ID with=OTHER_ID (the next Prefill of ID carries the capability of OTHER_ID)",
    "corrupt": "corrupt chunk N by=WORKER (the N-th that it copies from now on)",
    "fail": "fail chunk N by=WORKER, or: fail batch N by=WORKER",
    "late": "late chunk N by=WORKER [after=1ms]",
    "repeat": "repeat chunk N by=WORKER [after=1ms]",
    "crash": "crash WORKER [noticed=1ms] [down=100ms]",
    "stall": "stall WORKER for=TIME",
    "slow": "slow WORKER for=TIME factor=N",
    "partition": "partition A B for=TIME",
    "revoke": "revoke",
    "cancel": "cancel ID [reason=disconnect|stop]",
    "heal": "heal",
    "run": "run, run for TIME, run until TRACE [ID], run until MESSAGE, or: run until tokens ID N",
    "quiet": "quiet",
    "state": "state",
}
"""Every command and how it is written."""


class StoryError(BatonError):
    """A story that cannot be played; the text names file, line, command and remedy."""


class _Refusal(Exception):
    """What is wrong with a command; the place is added by whoever reads the file."""


def play(text: str, name: str) -> str:
    """Play a story and return it with what happened now; `name` stands in errors."""
    stage, lines = _Stage(), list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            lines.append(line)
        elif line.startswith(">"):
            command = line[1:].strip()
            try:
                told = stage.do(command)
            except (_Refusal, Violation) as error:
                raise StoryError(f"{name}:{number}: > {command}: {error}") from error
            lines += [f"> {command}", *told, ""]
    return "\n".join(lines).rstrip() + "\n"


def duration_us(text: str) -> int:
    """`5ms` in microseconds."""
    digits = text.rstrip("mus")
    unit = _TIMES.get(text[len(digits) :])
    if unit is None or not digits.isdigit():
        raise _Refusal(f"{text!r} is no time; write it like 250us, 5ms or 2s")
    return int(digits) * unit


class _Stage:
    """A world and the commands that drive it."""

    def __init__(self) -> None:
        self._built: tuple[World, Tampering] | None = None
        self._teller = Teller(silent=True)
        self._names: list[str] = []
        self._options: dict[str, str] = {}

    # -- reading -------------------------------------------------------------------------------

    def do(self, command: str) -> list[str]:
        """Carry a command out; what was told meanwhile."""
        verb, *rest = command.split() or [""]
        perform: Callable[[], None] | None = getattr(self, f"_do_{verb}", None)
        if verb not in USAGE or perform is None:
            raise _Refusal(f"{verb!r} is no command; known: {', '.join(USAGE)}")
        self._names = [word for word in rest if "=" not in word]
        self._options = dict(word.split("=", 1) for word in rest if "=" in word)
        self._teller.lines.clear()
        try:
            perform()
            if self._names or self._options:
                words = [*self._names, *self._options]
                raise _Refusal(f"{', '.join(words)} is not understood")
        except _Refusal as refusal:
            raise _Refusal(f"{refusal}; usage: {USAGE[verb]}") from refusal
        return list(self._teller.lines)

    def _name(self, what: str, default: str | None = None) -> str:
        if self._names:
            return self._names.pop(0)
        if default is None:
            raise _Refusal(f"{what} is missing")
        return default

    def _option(self, key: str, default: str | None = None) -> str:
        value = self._options.pop(key, default)
        if value is None:
            raise _Refusal(f"{key}= is missing")
        return value

    def _time(self, key: str, default: str | None = None) -> int:
        return duration_us(self._option(key, default))

    def _number(self, text: str) -> int:
        if not text.isdigit():
            raise _Refusal(f"{text!r} is no number")
        return int(text)

    def _worker(self, worker_id: str) -> SimWorker:
        worker = self._world.workers.get(worker_id)
        if worker is None:
            raise _Refusal(f"no worker {worker_id!r} lives; there are {', '.join(self._ids())}")
        return worker

    def _ids(self) -> list[str]:
        return list(self._world.workers)

    @property
    def _world(self) -> World:
        return self._stage()[0]

    @property
    def _tampering(self) -> Tampering:
        return self._stage()[1]

    def _stage(self) -> tuple[World, Tampering]:
        if self._built is None:
            raise _Refusal("there is no world yet; begin with `> world`")
        return self._built

    # -- the world -----------------------------------------------------------------------------

    def _do_world(self) -> None:
        options, self._options = self._options, {}
        try:
            plan = calm_plan(options)
        except ValueError as error:
            raise _Refusal(str(error)) from error
        self._teller = Teller(silent=True)
        world = World(plan, [*all_checkers(), self._teller])
        self._built = world, Tampering(world, self._teller)
        timeline = world.timeline
        self._until(lambda: self._introduced, "every worker to know every other")
        timeline.run_until(timeline.now_us + _SETTLE_US)
        self._teller.start_us, self._teller.silent = timeline.now_us, False

    @property
    def _introduced(self) -> bool:
        workers = self._world.workers.values()
        known = all(len(w.node.context.peers) == len(workers) - 1 for w in workers)
        return known and not self._world.router.missing(self._world.router_now_us)

    def _do_submit(self) -> None:
        first, length = self._number(self._option("first", "0")), self._option("prompt", "10")
        request = Request(
            request_id=self._name("the request's id"),
            prompt_token_ids=tuple(range(first, first + self._number(length))),
            sampling=SamplingParams(
                max_tokens=self._number(self._option("max_tokens", "3")),
                seed=self._number(self._option("seed", "0")),
            ),
            tenant_id=self._option("tenant", ""),
            cache_salt=self._option("salt", ""),
        )
        if request.request_id in self._world.deliveries:
            raise _Refusal(f"{request.request_id!r} was sent before; ids are used once")
        self._world.submit(Arrival(at_us=0, request=request))

    def _do_cancel(self) -> None:
        request_id = self._name("the request's id")
        if request_id not in self._world.router.records:
            raise _Refusal(f"{request_id!r} is not open; open: {self._open() or 'none'}")
        self._world.cancel(request_id, self._option("reason", "disconnect"))

    def _do_revoke(self) -> None:
        self._world.strike(Revoke(at_us=self._now_us))

    # -- messages ------------------------------------------------------------------------------

    def _tamper(self, action: str) -> None:
        kind, count = self._kind(self._name("the message")), self._name("the count", "1")
        rule = Rule(
            action=action,
            kind=kind,
            left=ALWAYS if count == "always" else self._number(count),
            sender=self._option("from", ""),
            receiver=self._option("to", ""),
            request_id=self._option("request", ""),
            after_us=self._time("after", "1ms"),
        )
        self._tampering.rules.append(rule)

    def _kind(self, name: str) -> str:
        if name not in KINDS:
            raise _Refusal(f"{name!r} is no message; known: {', '.join(sorted(KINDS))}")
        return name

    def _do_drop(self) -> None:
        self._tamper("drop")

    def _do_duplicate(self) -> None:
        self._tamper("duplicate")

    def _do_hold(self) -> None:
        self._tamper("hold")

    def _do_release(self) -> None:
        kind = self._name("the message", "")
        if not self._tampering.release(self._kind(kind) if kind else ""):
            raise _Refusal(f"no {kind or 'message'} is held")

    def _do_forge(self) -> None:
        if not self._tampering.forge(self._name("the request's id"), owner := self._option("with")):
            raise _Refusal(f"{owner!r} was given no capability so far")

    # -- faults --------------------------------------------------------------------------------

    def _chunk_fault(self, kind: str) -> None:
        if self._name("chunk") != "chunk":
            raise _Refusal("only chunks can be meant")
        number, worker = self._number(self._name("the number")), self._worker(self._option("by"))
        number += worker.plane.num_moves + worker.epoch * 1_000_000
        fault = ChunkFault(
            worker_id=worker.worker_id,
            number=number,
            kind=kind,
            delay_us=self._time("after", "1ms"),
        )
        self._world.listed["chunk", worker.worker_id, number] = fault

    def _do_corrupt(self) -> None:
        self._chunk_fault("corrupt")

    def _do_late(self) -> None:
        self._chunk_fault("late")

    def _do_repeat(self) -> None:
        self._chunk_fault("repeat")

    def _do_fail(self) -> None:
        if self._names[:1] != ["batch"]:
            self._chunk_fault("fail")
            return
        self._name("batch")
        number, worker = self._number(self._name("the number")), self._worker(self._option("by"))
        number += worker.engine.num_batches + worker.epoch * 1_000_000
        fault = EngineFault(worker_id=worker.worker_id, number=number)
        self._world.listed["engine", worker.worker_id, number] = fault

    def _do_crash(self) -> None:
        worker = self._worker(self._name("the worker"))
        self._world.crash(
            worker.worker_id,
            noticed_after_us=self._time("noticed", "1ms"),
            down_us=self._time("down", "100ms"),
        )

    def _strike(self, fault: Scheduled) -> None:
        self._world.strike(fault)

    def _do_stall(self) -> None:
        name, time_us = self._worker(self._name("the worker")).worker_id, self._time("for")
        self._strike(Stall(at_us=self._now_us, worker_id=name, duration_us=time_us))

    def _do_slow(self) -> None:
        name, time_us = self._worker(self._name("the worker")).worker_id, self._time("for")
        factor = self._number(self._option("factor"))
        fault = Slow(at_us=self._now_us, worker_id=name, duration_us=time_us, factor=factor)
        self._strike(fault)

    def _do_partition(self) -> None:
        pair = self._name("one process"), self._name("the other process")
        known = {*self._ids(), "router"}
        if not set(pair) <= known:
            raise _Refusal(f"a partition is between two of {', '.join(sorted(known))}")
        self._strike(Partition(at_us=self._now_us, between=pair, duration_us=self._time("for")))

    def _do_heal(self) -> None:
        self._tampering.heal()

    # -- time ----------------------------------------------------------------------------------

    @property
    def _now_us(self) -> int:
        return self._world.timeline.now_us

    def _open(self) -> str:
        records = self._world.router.records.values()
        return ", ".join(f"{r.request.request_id} {r.state}" for r in records)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        end_us = self._now_us + _LIMIT_US
        while not holds():
            if self._now_us > end_us or not self._world.timeline.step():
                seconds = _LIMIT_US // 1_000_000
                open_requests = self._open() or "no request"
                raise _Refusal(
                    f"waited {seconds} s of virtual time for {what}, {open_requests} open"
                )

    def _do_run(self) -> None:
        how = self._name("how", "")
        timeline = self._world.timeline
        if how == "for":
            timeline.run_until(timeline.now_us + duration_us(self._name("the time")))
        elif how == "until":
            self._run_until(self._name("what"))
        elif how == "":
            self._until(lambda: not self._world.router.records, "every request to end")
            timeline.run_until(timeline.now_us + _SETTLE_US)
        else:
            raise _Refusal(f"{how!r} is not understood")

    def _run_until(self, what: str) -> None:
        if what == "tokens":
            request_id, count = self._name("the request's id"), self._number(self._name("N"))
            self._until(lambda: self._num_tokens(request_id) >= count, f"{count} tokens")
        elif what in KINDS:
            self._tampering.seen.discard(what)
            self._until(lambda: what in self._tampering.seen, f"a {what} to be sent")
        else:
            request_id = self._name("the request's id", "")
            word = f"  {what} {request_id}." if request_id else f"  {what} "
            self._until(lambda: self._told(word), f"the trace {what}")

    def _told(self, word: str) -> bool:
        return any(word in f"{line} " for line in self._teller.lines)

    def _num_tokens(self, request_id: str) -> int:
        deliveries = self._world.deliveries.get(request_id, [])
        return sum(len(d.tokens) for d in deliveries if isinstance(d, Tokens))

    # -- looking -------------------------------------------------------------------------------

    def _do_quiet(self) -> None:
        """Everybody lets go of everything in bounded time, and every request had one end."""
        plan, world = self._world.plan, self._world
        limit_us = (2 * plan.transfer.lease_ms + 30 * plan.transfer.retry_ms + 5_000) * 1000
        end_us = self._now_us + limit_us
        while leftovers(world) and self._now_us < end_us:
            world.timeline.step()
        world.observe(lambda observer: observer.quiet(world))
        cached = ", ".join(
            f"{name} {worker.node.context.memory.pool.num_cached}"
            for name, worker in world.workers.items()
        )
        self._teller.lines.append(f"            nothing is held; blocks of history: {cached}")

    def _do_state(self) -> None:
        say = self._teller.lines.append
        for record in self._world.router.records.values():
            name, state = record.request.request_id, record.state
            say(f"            router: {name} {state}, attempt {record.attempt}")
        for name, worker in self._world.workers.items():
            if worker.role is not Role.DECODE:
                for key, job in worker.node.source.jobs.items():
                    say(f"            {name}: source of {key}, {_copy_state(job)}")
            for key, incoming in worker.node.destination.incoming.items():
                say(f"            {name}: destination of {key}, {incoming.transfer.state}")
            for sequence in worker.node.decode.sequences():
                say(f"            {name}: decodes {sequence.key}")
            pool = worker.node.context.memory.pool
            say(
                f"            {name}: {pool.num_used} blocks used, {pool.num_cached} history, "
                f"{pool.num_quarantined} in quarantine, {pool.num_free} free"
            )


def _copy_state(job: SourceJob) -> str:
    return str(job.transfer.state) if job.transfer is not None else "queued"
