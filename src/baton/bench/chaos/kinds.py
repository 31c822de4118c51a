"""The kinds of faults that a chaos run injects."""

from enum import StrEnum


class Kind(StrEnum):
    """One kind of fault; the values name them on the command line and in the report."""

    KILL_PREFILL = "kill-prefill"
    KILL_DECODE = "kill-decode"
    KILL_ROLE = "kill-role"
    RESTART = "restart"
    FREEZE_THAW = "freeze-thaw"
    FREEZE_KILL = "freeze-kill"
    KILL_IN_LOAD = "kill-in-load"
    SHM_FULL = "shm-full"
    FDS_WORKER = "fds-worker"
    FDS_GATEWAY = "fds-gateway"
    REVOKE = "revoke-routes"
    CANCEL_STORM = "cancel-storm"
    LEAVE_EARLY = "leave-early"
    LEAVE_MID = "leave-mid"
    LEAVE_END = "leave-end"
    FLIP = "flip-byte"
    DROP = "drop-message"
    DUPLICATE = "duplicate-message"
    DELAY = "delay-messages"
    DISK_FULL = "disk-full"
    FILE_TRUNCATED = "file-truncated"
    FILE_CORRUPT = "file-corrupt"
    FILE_DELETED = "file-deleted"


ABOUT = {
    Kind.KILL_PREFILL: "SIGKILL of one prefill worker",
    Kind.KILL_DECODE: "SIGKILL of one decode worker",
    Kind.KILL_ROLE: "SIGKILL of every worker of a role at once",
    Kind.RESTART: "SIGTERM: the worker ends and starts again in its place",
    Kind.FREEZE_THAW: "SIGSTOP for longer than the lease, then SIGCONT",
    Kind.FREEZE_KILL: "SIGSTOP until the watcher kills the worker",
    Kind.KILL_IN_LOAD: "SIGKILL in the middle of a load from the worker's host or disk tier",
    Kind.SHM_FULL: "SIGKILL, and the next life cannot allocate its arena (RLIMIT_FSIZE)",
    Kind.FDS_WORKER: "a worker without free descriptors while a peer restarts (RLIMIT_NOFILE)",
    Kind.FDS_GATEWAY: "gateway and router without free descriptors for a moment",
    Kind.REVOKE: "every transfer under way is revoked",
    Kind.CANCEL_STORM: "dozens of clients leave at once",
    Kind.LEAVE_EARLY: "a client leaves before its first token",
    Kind.LEAVE_MID: "a client leaves in the middle of its answer",
    Kind.LEAVE_END: "a client leaves with the last piece of its answer",
    Kind.FLIP: "a bit of a landed chunk changes in shared memory (push)",
    Kind.DROP: "a control message is lost",
    Kind.DUPLICATE: "a control message is sent twice",
    Kind.DELAY: "all control messages to one peer wait",
    Kind.DISK_FULL: "a process whose trace file is on a full disk",
    Kind.FILE_TRUNCATED: "some files of the disk tiers lose their end",
    Kind.FILE_CORRUPT: "a bit changes in some files of the disk tiers",
    Kind.FILE_DELETED: "some files of the disk tiers vanish",
}
DEATHS = (
    Kind.KILL_PREFILL,
    Kind.KILL_DECODE,
    Kind.RESTART,
    Kind.FREEZE_KILL,
    Kind.KILL_IN_LOAD,
    Kind.SHM_FULL,
)
"""Each ends one worker whose fellow of the same role lives."""

HEAVY = (*DEATHS, Kind.KILL_ROLE, Kind.FREEZE_THAW, Kind.FDS_WORKER, Kind.FDS_GATEWAY)
"""One at a time: the deployment is whole again before the next."""

FILES = (Kind.FILE_TRUNCATED, Kind.FILE_CORRUPT, Kind.FILE_DELETED)
LIGHT = (Kind.REVOKE, Kind.CANCEL_STORM, *FILES)
LEAVES = (Kind.LEAVE_EARLY, Kind.LEAVE_MID, Kind.LEAVE_END)
