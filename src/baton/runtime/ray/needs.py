"""What each worker of a configuration takes of its node."""

from baton.config import BatonConfig
from baton.policy.worker_placement import Need


def needs_of(config: BatonConfig) -> list[Need]:
    """One for each worker, in start order: a CPU for each engine thread, and its K/V in memory.

    Stages of a pipeline take turns on the cores of their worker and ask for none of their own. A
    worker on a CUDA device takes one GPU. The model's own memory is not known here.
    """
    cluster = config.cluster
    return [
        Need(
            worker_id=worker_id,
            role=role,
            cpus=config.worker.threads,
            gpus=int(config.model.device.startswith("cuda")),
            memory_nbytes=config.kv_nbytes_of(role) + config.cache.host_nbytes,
        )
        for worker_id, role in zip(cluster.worker_ids, cluster.roles, strict=True)
    ]
