"""One trace event, as every process writes it: a line of JSON."""

import msgspec


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a node traced, with its host's time and place.

    `at_us` is the monotonic clock of the host, which all processes of one host share; an event
    with `duration_us` in its data ended then. `request_id` is "" for what is of no request.
    """

    at_us: int
    place: str
    name: str
    request_id: str
    generation: int
    data: dict[str, int | float | str] = {}

    def number(self, field: str) -> int:
        """A field that counts; 0 where it is absent."""
        value = self.data.get(field, 0)
        return value if isinstance(value, int) else 0

    def text(self, field: str) -> str:
        """A field that names something; "" where it is absent."""
        return str(self.data.get(field, ""))
