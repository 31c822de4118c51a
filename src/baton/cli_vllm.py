"""Flags of the verbs that can work on vLLM servers, as overrides of the configuration."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from baton.cli_common import check_writable
from baton.config import BatonConfig

EngineOption = Annotated[
    str | None, typer.Option("--engine", help="baton, or vllm: workers are vLLM servers")
]
ConnectorOption = Annotated[
    str | None, typer.Option("--connector", help="vllm: who hands K/V over, nixl or baton")
]
PrefillTpOption = Annotated[
    int | None, typer.Option(help="vllm: tensor-parallel ranks of each prefill server", min=1)
]
DecodeTpOption = Annotated[
    int | None, typer.Option(help="vllm: the same of decode, and of plain vLLM", min=1)
]
PrefillUrlOption = Annotated[
    list[str] | None,
    typer.Option("--prefill-url", help="vllm: a server that runs, URL[,events=...]; repeatable"),
]
DecodeUrlOption = Annotated[
    list[str] | None, typer.Option("--decode-url", help="vllm: the same for decode; repeatable")
]
MixedUrlOption = Annotated[
    list[str] | None,
    typer.Option("--mixed-url", help="vllm: a server for whole requests; repeatable"),
]


def vllm_overrides(
    overrides: list[str] | None,
    engine: str | None = None,
    connector: str | None = None,
    prefill_urls: list[str] | None = None,
    decode_urls: list[str] | None = None,
    mixed_urls: list[str] | None = None,
    prefill_tp: int | None = None,
    decode_tp: int | None = None,
) -> list[str]:
    """The overrides with those that these flags stand for."""
    chosen = list(overrides or [])
    named = {
        "cluster.engine": engine,
        "vllm.connector": connector,
        "vllm.prefill_urls": prefill_urls,
        "vllm.decode_urls": decode_urls,
        "vllm.mixed_urls": mixed_urls,
        "vllm.prefill_tp": prefill_tp,
        "vllm.decode_tp": decode_tp,
    }
    for key, value in named.items():
        if value:
            chosen.append(f"{key}={msgspec.json.encode(value).decode()}")
    return chosen


def compare_engines(
    config: BatonConfig, names: list[str], console: Console, json_out: Path | None
) -> int:
    """`baton compare` where the engine is vLLM; the exit status."""
    from baton.bench.vllm.compare import compare_vllm

    check_writable(json_out)
    return compare_vllm(config, names, console, json_out)
