"""Checksums of the own memory, for chunks that a peer has written."""

import time
from collections.abc import Sequence

from baton.runtime.dataplane.arena import Bytes
from baton.runtime.dataplane.checksum import checksum
from baton.runtime.dataplane.ledger import Ledger, failed
from baton.runtime.dataplane.plane import DigestOrder, Finished, PlaneFault
from baton.runtime.dataplane.runs import coalesce, fault_in, local_views, stage_fault


def run_digest(ledger: Ledger, regions: Sequence[Bytes], handle: int) -> None:
    """Run an admitted digest to its end; a stop takes effect between two pieces."""
    order = ledger.start(handle)
    if order is None:
        return
    assert isinstance(order, DigestOrder)
    began_s = time.perf_counter()
    runs = [(offset, offset, nbytes) for offset, nbytes in order.runs]
    fault = stage_fault(order.stage, len(regions))
    size = 0 if fault else regions[order.stage].size
    fault = fault or fault_in(runs, size, size)
    if fault:
        ledger.finish_running(failed(handle, order, PlaneFault.OUT_OF_BOUNDS, fault))
        return
    views = local_views(regions[order.stage], coalesce(runs))
    value = checksum(views, lambda: ledger.stop_of(handle) is not None)
    if value is None:
        stop = ledger.stop_of(handle) or PlaneFault.CANCELLED
        ledger.finish_running(failed(handle, order, stop))
        return
    ledger.finish_running(
        Finished(
            handle=handle,
            reservation_id=order.reservation_id,
            chunk_id=order.chunk_id,
            nbytes=sum(nbytes for _, _, nbytes in runs),
            checksum=value,
            duration_us=round(1e6 * (time.perf_counter() - began_s)),
        )
    )
