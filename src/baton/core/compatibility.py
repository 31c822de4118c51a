"""What two processes compare before they decode anything that the other says."""

import msgspec

from baton.core.digest import digest
from baton.core.messages import PROTOCOL_VERSION, Envelope


def _without_prose(schema: object) -> object:
    """A schema without the descriptions that come from docstrings: words change, wires do not."""
    if isinstance(schema, dict):
        return {key: _without_prose(item) for key, item in schema.items() if key != "description"}
    if isinstance(schema, list):
        return [_without_prose(item) for item in schema]
    return schema


SCHEMA_DIGEST = digest(_without_prose(msgspec.json.schema(Envelope)))
"""Digest of every field of every message type, its name, type and default."""

COMPATIBILITY = f"baton/{PROTOCOL_VERSION} {SCHEMA_DIGEST}".encode()
"""First frame of every control message; a receiver drops whatever begins otherwise."""
