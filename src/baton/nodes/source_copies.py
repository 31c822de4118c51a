"""History that this worker sends on: pinned where it is in memory, brought up where it is below."""

from collections.abc import Callable

from baton.nodes.context import WorkerContext
from baton.nodes.sequence import Sequence
from baton.nodes.source_job import SourceJob
from baton.nodes.source_jobs import SourceJobs
from baton.protocol.source import SourceTransfer


class SourceCopies:
    """Opens the transfer of a copy. A claim that does not hold any more fails closed."""

    def __init__(
        self,
        context: WorkerContext,
        jobs: SourceJobs,
        load: Callable[[Sequence], bool],
        go_on: Callable[[SourceJob], None],
        fail: Callable[[SourceJob, str], None],
    ) -> None:
        self._context = context
        self._jobs = jobs
        self._load = load
        self._go_on = go_on
        self._fail = fail

    def begin(self, job: SourceJob) -> bool:
        """Pin the history, or order what of it lies in a lower tier; False: it is not here."""
        job.sequence.computes_nothing = True
        found = self._open(job) or self._load(job.sequence)
        self._context.counters["absent_prefixes"] += not found
        return found

    def on_loaded(self, sequence: Sequence) -> None:
        """What was below is in memory now, or it is a miss."""
        job = self._jobs.by_transfer.get(sequence.key)
        if job is None or not job.grant.is_copy or job.transfer is not None:
            return
        if self._open(job):
            self._go_on(job)
        else:
            self._context.counters["absent_prefixes"] += 1
            self._fail(job, "prefix_absent")

    def _open(self, job: SourceJob) -> bool:
        context, sequence = self._context, job.sequence
        table = context.memory.match(sequence.hashes, len(sequence.hashes))
        rows = len(table) * context.layout.block_size
        if rows != job.grant.num_tokens:
            context.memory.free(table)
            return False
        sequence.block_table = table
        sequence.num_computed = sequence.num_cached_tokens = rows
        job.transfer = SourceTransfer(job.grant, context.layout, tuple(table), rows)
        job.transfer.mark_complete()
        context.trace("copy_opened", job.fence, num_tokens=rows)
        return True
