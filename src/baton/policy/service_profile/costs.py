"""The measured constants beside the step itself: transfer, overhead, delays, contention."""

import msgspec

from baton.policy.service_profile.point import StepPhase


class TransferCost(msgspec.Struct, frozen=True, kw_only=True):
    """What moving a chunk and reading it back costs, over the real data plane."""

    bytes_per_us: float
    """Copy into the other worker's memory, with its checksum where that is on."""
    operation_us: float
    """Fixed part of each copy: order, queue, wake, completion."""
    digest_bytes_per_us: float
    """Read-back of the destination; 0 when checksums are off and nothing is read back."""
    checksum: bool

    def copy_us(self, nbytes: int) -> float:
        """One chunk of `nbytes`."""
        return self.operation_us + nbytes / self.bytes_per_us

    def digest_us(self, nbytes: int) -> float:
        """The read-back of one chunk of `nbytes`."""
        if not self.checksum or not self.digest_bytes_per_us:
            return 0.0
        return nbytes / self.digest_bytes_per_us


class StepOverhead(msgspec.Struct, frozen=True, kw_only=True):
    """What node, event loop and the hop between threads add to each step of a served engine."""

    step_us: float
    sequence_us: float
    """For each sequence of the step."""

    def us(self, num_sequences: int) -> float:
        """Of a step of so many sequences."""
        return self.step_us + self.sequence_us * num_sequences


class ServiceDelays(msgspec.Struct, frozen=True, kw_only=True):
    """What lies between client, gateway, router and workers while engines compute."""

    control_us: float
    """One message between router and worker, until its receiver acts on it."""
    gateway_in_us: float
    """From a client's request to the router: HTTP, validation, tokens."""
    gateway_out_us: float
    """From the router's tokens to the chunk at the client."""
    num_requests: int
    """That these are means of, without the longest twentieth."""


class Contention(msgspec.Struct, frozen=True, kw_only=True):
    """How much longer a step takes while the other core runs the other phase; at least 1.

    Cores share the memory's bandwidth and the last cache. Both factors are measured with the
    neighbour busy all the time.
    """

    prefill_beside_decode: float
    decode_beside_prefill: float
    is_measured: bool = True
    """False where no cores were left for a neighbour; both factors are 1 then."""

    def factor(self, phase: StepPhase) -> float:
        """Of a step of `phase`; a mixed step is as long as its prefill rows make it."""
        if phase is StepPhase.DECODE:
            return self.decode_beside_prefill
        return self.prefill_beside_decode
