"""The open-loop client: every request goes out when its time has come, whatever is outstanding."""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext

import msgspec

from baton.bench.load.body import BodyMaker
from baton.bench.load.call import CallFailed, Reason, Received, bounded, call, make_session, now_us
from baton.bench.load.inspect import inspect_target
from baton.bench.load.options import LoadOptions
from baton.bench.load.progress import Progress
from baton.bench.load.schedule import leavers, sleep_until
from baton.bench.load.target import Target
from baton.errors import ConfigError
from baton.goodput.record import Outcome, RequestRecord
from baton.workload.request import Workload

BODIES_NBYTES = 256 << 20
"""Bodies that are made before the run begins; the others are made one for each that was sent."""
LEAST_STAY_S = 0.001
"""A client that leaves at once has still sent its request."""
LEFT_EARLY = "cancelled by the client as asked"
INTERRUPTED = "interrupted"

OnProgress = Callable[[Progress], None]


async def run_load(
    target: Target,
    workload: Workload,
    options: LoadOptions,
    on_progress: OnProgress | None = None,
    *,
    stop: asyncio.Event | None = None,
) -> list[RequestRecord]:
    """Send a workload to a server and give one record for each request, in their order.

    Times count from the start of the run. After `stop` is set nothing more is sent, and what is
    outstanding ends as cancelled with the error "interrupted"; unsent requests have no record.
    """
    if not workload.requests:
        raise ConfigError(f"workload {workload.name!r} holds no requests; name one that holds some")
    abilities = options.abilities or await inspect_target(target)
    run = _Run(target, workload, msgspec.structs.replace(options, abilities=abilities), on_progress)
    return await run.run(stop or asyncio.Event())


class _Run:
    def __init__(
        self,
        target: Target,
        workload: Workload,
        options: LoadOptions,
        on_progress: OnProgress | None,
    ) -> None:
        assert options.abilities is not None
        self._target = target
        self._requests = workload.requests
        self._options = options
        self._on_progress = on_progress or (lambda progress: None)
        self._bodies = BodyMaker(target, options.abilities, workload, options).bodies()
        self._ready: deque[bytes] = deque()
        self._leavers = leavers(len(self._requests), options.cancellation_rate, options.seed)
        self._prefix = options.request_id_prefix or f"bench-{uuid.uuid4().hex[:8]}"
        self._url = target.url(target.endpoint.path)
        self._headers = target.all_headers
        self._records: dict[int, RequestRecord] = {}
        self._bugs: list[BaseException] = []
        self._start_us = 0
        self.progress = Progress(len(self._requests))

    def _clock(self) -> int:
        return now_us() - self._start_us

    async def run(self, stop: asyncio.Event) -> list[RequestRecord]:
        self._make_bodies()
        tasks: set[asyncio.Task[None]] = set()
        async with make_session() as self._session, self._slots() as self._slot:
            self._start_us = now_us()
            working = asyncio.create_task(self._work(tasks))
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (working, stopping, *tasks):
                    task.cancel()
                await asyncio.gather(working, *tasks, return_exceptions=True)
        if not working.cancelled():
            working.result()
        if self._bugs:
            raise self._bugs[0]
        return [self._records[index] for index in sorted(self._records)]

    def _make_bodies(self) -> None:
        nbytes = 0
        for body in self._bodies:
            self._ready.append(body)
            nbytes += len(body)
            if nbytes >= BODIES_NBYTES:
                return

    @asynccontextmanager
    async def _slots(self) -> AsyncIterator[asyncio.Semaphore | nullcontext[None]]:
        bound = self._options.max_concurrency
        yield asyncio.Semaphore(bound) if bound else nullcontext()

    async def _work(self, tasks: set[asyncio.Task[None]]) -> None:
        """Send every request in its time and see all of them end."""
        for index, request in enumerate(self._requests):
            body = self._ready.popleft()
            await sleep_until(request.arrival_us, self._clock)
            task = asyncio.create_task(self._send(index, body))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            task.add_done_callback(self._look_for_bug)
            if (later := next(self._bodies, None)) is not None:
                self._ready.append(later)
        if tasks:
            await asyncio.wait(tasks)

    def _look_for_bug(self, task: asyncio.Task[None]) -> None:
        """A bug of ours must not look like a request that was interrupted."""
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._bugs.append(bug)

    async def _send(self, index: int, body: bytes) -> None:
        async with self._slot:
            await self._serve(index, body)

    async def _serve(self, index: int, body: bytes) -> None:
        options = self._options
        received = Received()
        headers = {**self._headers, "X-Request-ID": self._request_id(index)}
        bound_s = options.request_timeout_s
        leaves = index in self._leavers and options.cancellation_delay_s < bound_s
        if leaves:
            bound_s = max(options.cancellation_delay_s, LEAST_STAY_S)
        self.progress.num_sent += 1
        self._on_progress(self.progress)
        sent_us = self._clock()
        outcome, error = Outcome.COMPLETED, ""
        calling = asyncio.create_task(
            call(self._session, self._url, headers, body, received, self._clock)
        )
        try:
            if await bounded(calling, bound_s):
                await calling
            elif leaves:
                outcome, error = Outcome.CANCELLED, LEFT_EARLY
            else:
                outcome = Outcome.FAILED
                error = f"{Reason.TIMEOUT}: no end within {bound_s:g} s"
        except CallFailed as failure:
            outcome, error = Outcome.FAILED, str(failure)
        except asyncio.CancelledError:
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
            outcome, error = Outcome.CANCELLED, INTERRUPTED
        self._note(index, sent_us, received, outcome, error)

    def _note(
        self, index: int, sent_us: int, received: Received, outcome: Outcome, error: str
    ) -> None:
        request = self._requests[index]
        record = RequestRecord(
            request_id=self._request_id(index),
            scheduled_us=request.arrival_us,
            sent_us=sent_us,
            token_times_us=tuple(received.token_times_us),
            end_us=self._clock(),
            num_prompt_tokens=received.num_prompt_tokens or request.num_prompt_tokens,
            num_output_tokens=received.num_output_tokens,
            outcome=outcome,
            error=error,
            mode=received.mode,
        )
        self._records[index] = record
        self.progress.end(record)
        self._on_progress(self.progress)

    def _request_id(self, index: int) -> str:
        return f"{self._prefix}-{index:06d}"


def reason_of(record: RequestRecord) -> str:
    """The short reason that failures are counted by."""
    return record.error.partition(":")[0]
