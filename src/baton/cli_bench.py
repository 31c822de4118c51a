"""`baton bench`, apart from the other verbs because of its many options."""

import os
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from baton.cli_common import check_writable, loop_factory
from baton.errors import ConfigError

if TYPE_CHECKING:
    from baton.bench.load.settings import BenchSettings
    from baton.bench.load.target import Target
    from baton.goodput.counting import Counting

_COUNT_AS = {"miss": "missed", "exclude": "left out", "met": "met"}
"""The rules of the denominator as words of the command line."""

Url = Annotated[str, typer.Option("--url", "--base-url", help="server to load")]
Dataset = Annotated[Path | None, typer.Option("--dataset", "--dataset-path", help="trace file")]
Goodput = Annotated[list[str] | None, typer.Option("--goodput", help="ttft:MS tpot:MS e2el:MS")]
Warmup = Annotated[
    int, typer.Option("--warmup-requests", "--num-warmups", help="first ones, left out")
]


def bench(
    words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    url: Url = "http://127.0.0.1:8000",
    model: Annotated[str | None, typer.Option("--model", help="the only one served")] = None,
    endpoint: Annotated[str, typer.Option(help="completions or chat")] = "completions",
    header: Annotated[list[str] | None, typer.Option("--header", help="NAME=VALUE")] = None,
    dataset: Dataset = None,
    format: Annotated[str, typer.Option("--format", help="of the trace")] = "auto",
    dataset_name: Annotated[str, typer.Option(help="without a file: random")] = "random",
    random_input_len: Annotated[int, typer.Option(help="prompt tokens")] = 512,
    random_output_len: Annotated[int, typer.Option(help="output tokens")] = 64,
    random_range_ratio: Annotated[float, typer.Option(help="lengths vary by this share")] = 0.0,
    num_prompts: Annotated[int, typer.Option(help="requests to send")] = 100,
    max_prompt_len: Annotated[int | None, typer.Option(help="cut longer prompts")] = None,
    max_output_len: Annotated[int | None, typer.Option(help="cut longer outputs")] = None,
    scale_lengths: Annotated[float, typer.Option(help="divide all lengths by this")] = 1.0,
    request_rate: Annotated[float, typer.Option(help="requests/s; inf: no waiting")] = float("inf"),
    arrivals: Annotated[str, typer.Option(help="poisson, gamma, constant or trace")] = "",
    burstiness: Annotated[float, typer.Option(help="1 Poisson, less is burstier")] = 1.0,
    time_scale: Annotated[float, typer.Option(help="multiply arrival times by this")] = 1.0,
    max_concurrency: Annotated[int | None, typer.Option(help="bound on requests in flight")] = None,
    request_timeout: Annotated[float, typer.Option(help="seconds of one request")] = 600.0,
    request_cancellation_rate: Annotated[float, typer.Option(help="percent that leave")] = 0.0,
    request_cancellation_delay: Annotated[float, typer.Option(help="seconds they stay")] = 0.0,
    goodput: Goodput = None,
    attainment: Annotated[float, typer.Option(help="share that must meet them")] = 0.9,
    warmup_requests: Warmup = 0,
    failed: Annotated[str, typer.Option(help="failed requests: miss or exclude")] = "miss",
    cancelled: Annotated[str, typer.Option(help="cancelled ones: exclude or miss")] = "exclude",
    single_token: Annotated[str, typer.Option(help="their TPOT: met or exclude")] = "met",
    search: Annotated[bool, typer.Option("--search", help="find the highest goodput")] = False,
    search_low: Annotated[float, typer.Option(help="first rate")] = 0.5,
    search_high: Annotated[float, typer.Option(help="last rate")] = 64.0,
    resolution: Annotated[float, typer.Option(help="requests/s to find it within")] = 0.25,
    repetitions: Annotated[int, typer.Option(help="runs at each rate")] = 1,
    seed: Annotated[int, typer.Option(help="of lengths, arrivals, prompts, samplers")] = 0,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos/--no-ignore-eos")] = True,
    json_out: Annotated[Path | None, typer.Option("--json", help="write the result here")] = None,
    save_result: Annotated[bool, typer.Option("--save-result", help="write it to ./")] = False,
    save_detailed: Annotated[bool, typer.Option("--save-detailed", help="every request")] = False,
    html_out: Annotated[Path | None, typer.Option("--html", help="write a report here")] = None,
) -> None:
    """Load any OpenAI-compatible server open-loop and say what its clients saw."""
    flags = locals()
    from baton.bench.load.command import bench_command

    raise typer.Exit(bench_command(_settings(flags), Console(), loop_factory()))


def _settings(flags: dict[str, Any]) -> "BenchSettings":
    """The flags as checked settings. Raises ConfigError."""
    from baton.bench.load.options import LoadOptions
    from baton.bench.load.settings import (
        ArrivalSettings,
        BenchSettings,
        DataSettings,
        SearchSettings,
    )
    from baton.goodput.slo import parse_goodput

    data_names: tuple[str, ...] = (
        "format",
        "dataset_name",
        "random_input_len",
        "random_output_len",
    )
    data_names += ("random_range_ratio", "num_prompts", "max_prompt_len", "max_output_len")
    targets = _target_words(flags["goodput"] or [], flags["words"] or [])
    searching = SearchSettings(
        low=flags["search_low"],
        high=flags["search_high"],
        resolution=flags["resolution"],
        repetitions=flags["repetitions"],
    )
    return BenchSettings(
        target=_target(flags),
        data=DataSettings(
            path=flags["dataset"],
            scale_lengths=flags["scale_lengths"],
            **{name: flags[name] for name in data_names},
        ),
        arrivals=ArrivalSettings(
            process=flags["arrivals"],
            rate=flags["request_rate"],
            burstiness=flags["burstiness"],
            time_scale=flags["time_scale"],
        ),
        options=LoadOptions(
            seed=flags["seed"],
            ignore_eos=flags["ignore_eos"],
            max_concurrency=flags["max_concurrency"],
            request_timeout_s=flags["request_timeout"],
            cancellation_rate=_percent(flags["request_cancellation_rate"]),
            cancellation_delay_s=flags["request_cancellation_delay"],
        ),
        counting=_counting(flags),
        targets=parse_goodput(targets, flags["attainment"]) if targets else None,
        search=searching if flags["search"] else None,
        json_out=_json_path(flags),
        save_detailed=flags["save_detailed"],
        html_out=_page_path(flags["html_out"]),
    )


def _target_words(given: list[str], stray: list[str]) -> list[str]:
    """Targets after one --goodput may be several words, as vLLM has them."""
    for word in stray:
        if not given or ":" not in word:
            raise ConfigError(f"unexpected argument {word!r}; see baton bench --help")
    return [*given, *stray]


def _target(flags: dict[str, Any]) -> "Target":
    from baton.bench.load.target import Endpoint, Target

    if flags["endpoint"] not in tuple(Endpoint):
        raise ConfigError(f"--endpoint {flags['endpoint']!r}: use completions or chat")
    headers = {}
    for text in flags["header"] or []:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConfigError(f"--header {text!r}: write NAME=VALUE")
        if not text.isprintable():
            raise ConfigError(f"--header {text!r}: no line ends or other control characters")
        headers[name] = value
    return Target(
        base_url=flags["url"],
        model=flags["model"] or "",
        endpoint=Endpoint(flags["endpoint"]),
        headers=headers,
        api_key=os.environ.get("OPENAI_API_KEY", ""),
    )


def _counting(flags: dict[str, Any]) -> "Counting":
    from baton.goodput.counting import CountAs, Counting

    allowed = {
        "failed": ("miss", "exclude"),
        "cancelled": ("exclude", "miss"),
        "single_token": ("met", "exclude"),
    }
    for name, words in allowed.items():
        if flags[name] not in words:
            flag = "--" + name.replace("_", "-")
            raise ConfigError(f"{flag} {flags[name]!r}: use {' or '.join(words)}")
    return Counting(
        failed=CountAs(_COUNT_AS[flags["failed"]]),
        cancelled=CountAs(_COUNT_AS[flags["cancelled"]]),
        single_token=CountAs(_COUNT_AS[flags["single_token"]]),
        num_warmup=flags["warmup_requests"],
    )


def _percent(value: float) -> float:
    if not 0 <= value <= 100:
        raise ConfigError(f"--request-cancellation-rate {value:g}: a percentage from 0 to 100")
    return value / 100


def _json_path(flags: dict[str, Any]) -> Path | None:
    path: Path | None = flags["json_out"]
    if path is None and (flags["save_result"] or flags["save_detailed"]):
        path = Path(f"baton-bench-{datetime.now():%Y%m%d-%H%M%S}.json")
    check_writable(path)
    return path


def _page_path(path: Path | None) -> Path | None:
    if path is not None and find_spec("plotly") is None:
        raise ConfigError(f"--html {path} needs plotly; install kvbaton[bench]")
    check_writable(path, "--html")
    return path


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("bench")(bench)
