"""Does a grant answer what the router asked for? Nothing is believed that was not asked."""

from baton.core.layout import KVLayout
from baton.core.manifest import Grant, grant_defect
from baton.core.messages import Reserve
from baton.core.reblock import transform_defect
from baton.core.snapshot import WorkerInfo


def grant_answer_defect(
    grant: Grant, asked: Reserve, num_tokens: int, destination: WorkerInfo
) -> str:
    """Name of the first field that answers something else, or leaves the granter's pool; or ""."""
    for name in ("route_epoch", "direction", "schedule", "purpose"):
        if getattr(grant, name) != getattr(asked, name):
            return name
    if grant.num_tokens != num_tokens:
        return "num_tokens"
    return grant_defect(grant, destination.model.layout, destination.num_blocks)


def granted_to_other(grant: Grant, layout: KVLayout, destination: WorkerInfo) -> str:
    """Name of the first field that no honest `destination` could have granted to a source whose
    own layout is `layout`, or ""."""
    theirs = destination.model.layout
    if transform_defect(layout, theirs):
        return "layout"
    sizes, splits = grant.block_sizes, grant.pp_sizes
    if (sizes.source if sizes else theirs.block_size) != layout.block_size:
        return "block_sizes"
    if (splits.source if splits else theirs.pp_size) != layout.pp_size:
        return "pp_sizes"
    return grant_defect(grant, theirs, destination.num_blocks)
