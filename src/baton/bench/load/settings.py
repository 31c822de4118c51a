"""What `baton bench` was asked for, checked before anything is sent."""

import math
from pathlib import Path

import msgspec

from baton.bench.load.options import LoadOptions
from baton.bench.load.target import Target
from baton.errors import ConfigError
from baton.goodput.counting import Counting
from baton.goodput.slo import SLOTargets

DRAWN = ("poisson", "gamma", "constant")
ARRIVALS = (*DRAWN, "trace")
RANDOM = "random"
MAX_PROMPTS = 10_000_000
MIN_RATE = 1e-6
"""Below it the second request would not come in a lifetime."""


class DataSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests are sent: a trace file, or drawn lengths."""

    path: Path | None = None
    format: str = "auto"
    dataset_name: str = RANDOM
    random_input_len: int = 512
    random_output_len: int = 64
    random_range_ratio: float = 0.0
    num_prompts: int = 100
    max_prompt_len: int | None = None
    max_output_len: int | None = None
    scale_lengths: float = 1.0

    def __post_init__(self) -> None:
        if self.num_prompts < 1:
            raise ConfigError(f"--num-prompts {self.num_prompts}: at least 1 request is needed")
        if self.num_prompts > MAX_PROMPTS:
            raise ConfigError(f"--num-prompts {self.num_prompts}: at most {MAX_PROMPTS} in one run")
        if self.path is not None and not self.path.is_file():
            raise ConfigError(f"--dataset {self.path} is not a file; name a trace file")
        if self.path is None and self.dataset_name != RANDOM:
            raise ConfigError(
                f"--dataset-name {self.dataset_name!r} is not known; use {RANDOM!r}, or give a "
                "trace file with --dataset PATH and its --format"
            )
        if not 0 <= self.random_range_ratio < 1:
            raise ConfigError(f"--random-range-ratio {self.random_range_ratio}: from 0 to below 1")


class ArrivalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When they are sent."""

    process: str = ""
    """Empty: the trace's own times if it has some and no rate is given, else Poisson."""
    rate: float = math.inf
    burstiness: float = 1.0
    time_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.process and self.process not in ARRIVALS:
            raise ConfigError(f"--arrivals {self.process!r}: use one of {', '.join(ARRIVALS)}")
        if not self.rate >= MIN_RATE:
            raise ConfigError(
                f"--request-rate {self.rate:g}: at least {MIN_RATE:g} requests a second, or inf"
            )
        if not 0 < self.burstiness < math.inf:
            raise ConfigError(f"--burstiness {self.burstiness:g}: a finite number above 0")
        if not 0 < self.time_scale < math.inf:
            raise ConfigError(f"--time-scale {self.time_scale:g}: a finite number above 0")
        if self.burstiness != 1 and self.process in ("poisson", "constant", "trace"):
            raise ConfigError(
                f"--burstiness {self.burstiness:g} has no effect on --arrivals {self.process}; "
                "use --arrivals gamma"
            )


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Between which rates the goodput is looked for."""

    low: float = 0.5
    high: float = 64.0
    resolution: float = 0.25
    repetitions: int = 1
    drain_s: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (
            ("low", self.low),
            ("high", self.high),
            ("resolution", self.resolution),
        ):
            if not 0 < value < math.inf:
                flag = "--resolution" if name == "resolution" else f"--search-{name}"
                raise ConfigError(f"{flag} {value:g}: a finite number of requests/s above 0")
        if self.high < self.low:
            raise ConfigError(f"--search-high {self.high:g} is below --search-low {self.low:g}")
        if self.repetitions < 1:
            raise ConfigError(f"--repetitions {self.repetitions}: at least 1")


class BenchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the command."""

    target: Target
    data: DataSettings
    arrivals: ArrivalSettings
    options: LoadOptions
    counting: Counting
    targets: SLOTargets | None = None
    search: SearchSettings | None = None
    json_out: Path | None = None
    save_detailed: bool = False
    html_out: Path | None = None

    def __post_init__(self) -> None:
        if self.search is not None and self.targets is None:
            raise ConfigError(
                "--search looks for the highest rate that meets targets; add --goodput ttft:500 "
                "tpot:100 or others"
            )
        if self.counting.num_warmup >= self.data.num_prompts:
            raise ConfigError(
                f"--warmup-requests {self.counting.num_warmup} leaves none of "
                f"{self.data.num_prompts} requests to measure; raise --num-prompts"
            )
        process = self.arrivals.process
        if process == "trace" and self.data.path is None:
            raise ConfigError(
                "--arrivals trace replays a trace's own times; name it with --dataset"
            )
        if self.search is None and process in DRAWN and math.isinf(self.arrivals.rate):
            raise ConfigError(f"--arrivals {process} needs a finite --request-rate")
        if self.search is not None and not math.isinf(self.arrivals.rate):
            raise ConfigError("--search chooses the rates itself; leave --request-rate out")
