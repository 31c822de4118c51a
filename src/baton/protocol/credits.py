"""Byte credits: 0 <= in-flight bytes <= capacity at every moment (specification 0x06B)."""


class CreditWindow:
    """Bounds bytes owned by the network and by destination staging or copy work.

    Credit is taken before a chunk is sent and returned at DEVICE_VISIBLE, not at receive: between
    the two, staging still owns the buffer. Returning credit frees no cache block.
    """

    def __init__(self, capacity_nbytes: int) -> None:
        assert capacity_nbytes > 0
        self.capacity_nbytes = capacity_nbytes
        self.inflight_nbytes = 0
        self.peak_nbytes = 0

    def try_acquire(self, nbytes: int) -> bool:
        """Take credit for `nbytes` if the window has room; a chunk larger than it never fits."""
        assert nbytes > 0
        if self.inflight_nbytes + nbytes > self.capacity_nbytes:
            return False
        self.inflight_nbytes += nbytes
        self.peak_nbytes = max(self.peak_nbytes, self.inflight_nbytes)
        return True

    def release(self, nbytes: int) -> None:
        """Return credit that was taken; returning more than is out is our own bug."""
        assert 0 < nbytes <= self.inflight_nbytes, (nbytes, self.inflight_nbytes)
        self.inflight_nbytes -= nbytes
