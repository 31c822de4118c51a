"""What a vLLM server says of itself: /health, /v1/models, /version and the load in /metrics."""

import re

import msgspec

from baton.runtime.vllm.servers import ServerLoad

_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SUMMED = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
}


def read_load(text: str) -> ServerLoad:
    """The load in a Prometheus page; engines of one server are summed, their usage averaged."""
    values: dict[str, float] = {}
    usages: list[float] = []
    config: dict[str, str] = {}
    started: list[float] = []
    for line in text.splitlines():
        if not line.startswith(("vllm:", "process_start")):
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        name, labels, value = match.groups()
        if name in _SUMMED:
            values[_SUMMED[name]] = values.get(_SUMMED[name], 0.0) + _number(value)
        elif name == "vllm:kv_cache_usage_perc":
            usages.append(_number(value))
        elif name == "vllm:cache_config_info":
            config = dict(_LABEL.findall(labels or ""))
        elif name == "process_start_time_seconds":
            started.append(_number(value))
    return ServerLoad(
        running=int(values.get("running", 0)),
        waiting=int(values.get("waiting", 0)),
        kv_usage=min(1.0, sum(usages) / len(usages)) if usages else 0.0,
        num_blocks=_count(config.get("num_gpu_blocks")),
        block_size=_count(config.get("block_size")),
        started=max(started, default=0.0),
    )


def read_cache_config(text: str) -> dict[str, str]:
    """The labels of `vllm:cache_config_info` in a Prometheus page; {} where it is not there."""
    for line in text.splitlines():
        if line.startswith("vllm:cache_config_info{") and (match := _LINE.match(line)):
            return dict(_LABEL.findall(match.group(2)))
    return {}


class ModelCard(msgspec.Struct, frozen=True):
    """One entry of /v1/models."""

    id: str
    root: str = ""
    max_model_len: int = 0


class _Models(msgspec.Struct, frozen=True):
    data: list[ModelCard]


def read_models(body: bytes) -> list[ModelCard]:
    """The models of a server; [] for anything that is not such a list."""
    try:
        return msgspec.json.decode(body, type=_Models, strict=False).data
    except (msgspec.DecodeError, RecursionError):
        return []


class _Version(msgspec.Struct, frozen=True):
    version: str = ""


def read_version(body: bytes) -> str:
    """The release of a server; "" for anything that does not name one."""
    try:
        return msgspec.json.decode(body, type=_Version).version
    except (msgspec.DecodeError, RecursionError):
        return ""


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if value == value and abs(value) < 1e18 else 0.0


def _count(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0
