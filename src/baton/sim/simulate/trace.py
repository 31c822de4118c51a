"""The trace as it is served: cut, spread, faster, or rounded up to whole blocks."""

import msgspec

from baton.errors import ConfigError
from baton.sim.simulate.plan import TraceOptions
from baton.workload.arrivals import with_arrivals
from baton.workload.fit import clip
from baton.workload.load import load_trace
from baton.workload.request import Workload


def load(options: TraceOptions) -> Workload:
    """The requests with the lengths that the trace gives them, outputs cut where that is asked."""
    workload = load_trace(
        options.path,
        options.format,
        limit=options.num,
        tick_us=options.tick_ms * 1000 or None,
    )
    if options.max_output is not None:
        workload = clip(workload, max_output=options.max_output)
    if options.speed != 1.0:
        times_us = [round(one.arrival_us / options.speed) for one in workload.requests]
        workload = with_arrivals(workload, times_us, f"own arrivals {options.speed:g} times faster")
    return workload


def in_whole_blocks(workload: Workload) -> Workload:
    """Prompts of whole hash blocks and one token: the partly filled last block counts as a block.

    That is how a trace's own ids count it: an id that comes again is a hit, be its block full or
    not. The one token more is the row that is always computed, so that every block can be a hit.
    """
    size = workload.tokens_per_hash
    if not size:
        raise ConfigError(f"--whole-blocks: {workload.name!r} has no hash ids to round prompts to")
    return msgspec.structs.replace(
        workload,
        requests=tuple(
            msgspec.structs.replace(
                one, num_prompt_tokens=-(-one.num_prompt_tokens // size) * size + 1
            )
            for one in workload.requests
        ),
        notes=(*workload.notes, f"prompts rounded up to whole blocks of {size} tokens, and one"),
    )
