"""The smallest fleets of two machine types that serve a rate: a walk along a staircase.

One more machine of either pool never makes a fleet worse, so whether it serves the rate is
monotone in both counts. The fleets at the edge of what serves then form a staircase, and as cost,
power and number of machines grow with both counts, every best fleet is a corner of it. The walk
simulates only along the edge: what lies below it fails as a larger fleet failed, what lies beyond
costs more than a smaller one that serves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from baton.errors import ConfigError
from baton.planner.provision.fleet import Fleet, mixed_fleet, split_fleet
from baton.planner.provision.probe import Prober
from baton.planner.provision.rate import check_seeds, meets

MAX_MACHINES = 512
"""Of one pool, unless told."""


@dataclass(frozen=True, kw_only=True)
class Walk:
    """What a search did, so that its answer can be judged."""

    corners: tuple[Fleet, ...]
    """Fleets that serve the rate and stop serving it with one machine less in either pool."""
    num_simulated: int
    """Fleets that were simulated."""
    num_failing: int
    """Fleets that were not: a larger one failed."""
    num_larger: int
    """Fleets that were not: a smaller one serves, with no more of either type."""
    largest: tuple[int, int]
    """The box of counts that the walk covers."""

    def statement(self) -> str:
        """Why no other fleet of the box can be better."""
        prompts, tokens = self.largest
        return (
            f"{prompts} x {tokens} fleets: {self.num_simulated} simulated, {self.num_failing} "
            f"smaller than one that failed, {self.num_larger} larger than one that serves"
        )


def smallest_mixed(
    prober: Prober,
    machine: str,
    rate_per_s: float,
    seeds: Sequence[int],
    max_machines: int = MAX_MACHINES,
) -> Fleet | None:
    """The fewest machines that serve the rate when each runs both phases."""
    check_seeds(seeds)
    num = _smallest(lambda num: meets(prober, mixed_fleet(machine, num), rate_per_s, seeds),
                    max_machines)  # fmt: skip
    return mixed_fleet(machine, num) if num else None


def staircase(
    prober: Prober,
    prompt: str,
    token: str,
    rate_per_s: float,
    seeds: Sequence[int],
    max_machines: int = MAX_MACHINES,
) -> Walk:
    """Every smallest fleet of these two types that serves the rate."""
    check_seeds(seeds)
    tried: dict[tuple[int, int], bool] = {}

    def serves(num_prompt: int, num_token: int) -> bool:
        key = (num_prompt, num_token)
        if key not in tried:
            fleet = split_fleet(prompt, num_prompt, token, num_token)
            tried[key] = meets(prober, fleet, rate_per_s, seeds)
        return tried[key]

    square = _smallest(lambda num: serves(num, num), max_machines)
    if not square:
        return _walked(tried, [], (max_machines, max_machines), prompt, token)
    largest = _bounds(prober, prompt, token, square, max_machines)
    return _walked(tried, corners_of(serves, *largest), largest, prompt, token)


def _smallest(serves: Callable[[int], bool], most: int) -> int:
    """The least count that serves, by doubling and bisection; 0 when none up to `most` does."""
    if most < 1:
        raise ConfigError(f"max_machines = {most}: at least 1 of each pool")
    high = 1
    while not serves(high):
        if high >= most:
            return 0
        high = min(2 * high, most)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if serves(middle) else (middle, high)
    return high


def _bounds(prober: Prober, prompt: str, token: str, square: int, most: int) -> tuple[int, int]:
    """Counts beyond which a fleet costs, draws and counts more than the square one that serves."""
    one, other = prober.service.machine(prompt), prober.service.machine(token)
    sums = [
        (one.cost, other.cost),
        (one.power, other.power),
        (1.0, 1.0),
    ]
    prompts = max(int((square * (a + b) - b) / a) for a, b in sums)
    tokens = max(int((square * (a + b) - a) / b) for a, b in sums)
    return min(prompts, most), min(tokens, most)


def corners_of(
    serves: Callable[[int, int], bool], most_prompt: int, most_token: int
) -> list[tuple[int, int]]:
    """Along the edge, from many prompt and few token machines to the other end."""
    corners: list[tuple[int, int]] = []
    num_prompt, num_token = most_prompt, 1
    while num_prompt >= 1 and num_token <= most_token:
        if not serves(num_prompt, num_token):
            num_token += 1
            continue
        num_prompt = _lower(serves, num_prompt, num_token)
        corners.append((num_prompt, num_token))
        num_prompt -= 1
        num_token += 1
    return corners


def _lower(serves: Callable[[int, int], bool], num_prompt: int, num_token: int) -> int:
    """The fewest prompt machines beside these token machines, by strides that double."""
    passing, stride = num_prompt, 1
    while passing > 1:
        tried = max(1, passing - stride)
        if serves(tried, num_token):
            passing, stride = tried, 2 * stride
        elif stride == 1:
            break
        else:
            stride = 1
    return passing


def _walked(
    tried: dict[tuple[int, int], bool],
    corners: list[tuple[int, int]],
    largest: tuple[int, int],
    prompt: str,
    token: str,
) -> Walk:
    """How each fleet of the box was decided."""
    prompts, tokens = largest
    num_serving = sum(
        max((prompts - p + 1 for p, t in corners if t <= num_token), default=0)
        for num_token in range(1, tokens + 1)
    )
    inside = [serves for (p, t), serves in tried.items() if p <= prompts and t <= tokens]
    return Walk(
        corners=tuple(split_fleet(prompt, p, token, t) for p, t in corners),
        num_simulated=len(inside),
        num_failing=prompts * tokens - num_serving - inside.count(False),
        num_larger=num_serving - inside.count(True),
        largest=largest,
    )
