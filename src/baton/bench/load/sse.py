"""Server-sent events out of bytes that arrive in any pieces."""

DONE = b"[DONE]"


class EventReader:
    """Feeds on what a read returned and gives the data of every event that is now whole.

    An event ends with an empty line; its `data` lines are joined by line feeds; other fields and
    comments are passed over. Lines end in LF, CR LF or CR.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._after_cr = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The events completed by this piece."""
        rest = self._rest
        # By far the most common case: whole events of one data line each, nothing left over.
        if not rest and not self._data and b"\r" not in piece and piece.endswith(b"\n\n"):
            events = piece[:-2].split(b"\n\n")
            if all(one.startswith(b"data: ") and b"\n" not in one for one in events):
                self._after_cr = False
                return [one[6:] for one in events]
        return self._feed_lines(rest + piece if rest else piece)

    def _feed_lines(self, text: bytes) -> list[bytes]:
        if self._after_cr and text:
            # The line was taken at its CR; the LF that may belong to it has come only now.
            text = text.removeprefix(b"\n")
            self._after_cr = False
        if text.endswith(b"\r"):
            self._after_cr = True
        # bytes.splitlines knows exactly the three ends of line that the format has.
        lines = text.splitlines()
        self._rest = b""
        if lines and not text.endswith((b"\n", b"\r")):
            self._rest = lines.pop()
        events = []
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
