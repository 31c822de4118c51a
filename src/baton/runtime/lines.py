"""The lines of a child process, however long: what is longer than the bound is left out."""

from asyncio import StreamReader
from collections.abc import AsyncIterator

LINE_NBYTES_MAX = 1 << 20
"""Pass it as the `limit` of a child whose lines are read here; its own reports are far shorter."""


async def read_lines(stream: StreamReader) -> AsyncIterator[bytes]:
    """Every line until the child closes its output; of an over-long one at most its tail."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # longer than the limit; what was read of it is gone
            continue
        if not line:
            return
        yield line
