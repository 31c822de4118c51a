"""The notes by which one NIXL plane tells another which chunks have landed.

A note begins with the receiver's token. NIXL names the sender by whatever the sender calls itself,
so the token is what proves that the sender was given the receiver's descriptor; a record counts
only if the agent is one of a connected life of a peer.
"""

import secrets
import struct
from collections.abc import Sequence

from baton.runtime.dataplane.plane import Finished, NixlRegion, Received

TOKEN_NBYTES = 16
_RECORD = struct.Struct("<4Q")
RECORDS_PER_NOTE = 64


class BadNote(Exception):
    """A note with another token or a torn record."""


def pack(token: bytes, moved: Sequence[Finished]) -> bytes:
    """The note about chunks; one without chunks asks the receiver for its attention."""
    return token + b"".join(
        _RECORD.pack(chunk.reservation_id, chunk.chunk_id, chunk.nbytes, chunk.checksum)
        for chunk in moved
    )


def num_records(note: bytes) -> int:
    """How many chunks a note of anybody would be about."""
    return max(0, len(note) - TOKEN_NBYTES) // _RECORD.size


def unpack(note: bytes, token: bytes, sender: NixlRegion) -> list[Received]:
    """The chunks of a note that came from the agent of `sender`. Raises BadNote."""
    records = note[TOKEN_NBYTES:]
    if not secrets.compare_digest(note[:TOKEN_NBYTES], token):
        raise BadNote("another token")
    if len(records) % _RECORD.size or len(records) > RECORDS_PER_NOTE * _RECORD.size:
        raise BadNote(f"{len(records)} bytes of records")
    return [
        Received(
            source_id=sender.worker_id,
            source_epoch=sender.epoch,
            reservation_id=reservation_id,
            chunk_id=chunk_id,
            nbytes=nbytes,
            checksum=checksum,
            framing_nbytes=_RECORD.size,
        )
        for reservation_id, chunk_id, nbytes, checksum in _RECORD.iter_unpack(records)
    ]
