"""From a model folder to something that runs steps: weights, kernels, and the proof of both."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from baton.config import ModelConfig
from baton.core.layout import KVLayout, ModelInfo
from baton.engine import linear
from baton.engine.architecture import Shape, describe, load_model, read_config
from baton.engine.attention import Attention
from baton.engine.forward import Forward
from baton.engine.generic import GenericForward
from baton.engine.identity import identify
from baton.engine.ops import TorchOps
from baton.engine.plain import PlainForward, is_plain
from baton.engine.pool import TORCH_DTYPES
from baton.engine.selftest import Reference, make_reference, warm
from baton.errors import ConfigError, ModelRefused

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Built:
    """A runnable model, what it is, and how exact it is."""

    info: ModelInfo
    forward: Forward
    report: str
    reference: Callable[[], Reference]


def build(
    path: Path, config: ModelConfig, block_size: int, report: Progress, threads: int = 1
) -> Built:
    """Load and pack the model in `path`; see Engine.load for what it raises."""
    _check_device(config)
    report("load", 0.1)
    with torch.inference_mode():
        settings = read_config(path)
        shape = describe(settings)
        model = load_model(path, settings, TORCH_DTYPES[config.dtype], config.device)
        report("reference", 0.4)
        references = [make_reference(model, shape.vocab_size)] if config.self_test else []
        report("pack", 0.5)
        layout = KVLayout(
            num_layers=shape.num_layers, num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim, block_size=block_size,
            dtype_k=config.dtype, dtype_v=config.dtype,
        )  # fmt: skip
        max_len = _max_model_len(config, shape)
        obstacle = _obstacle(config)
        ops = make_ops(config, threads)
        # How many threads share a kernel changes none of its bits.
        kernels = "torch" if type(ops) is TorchOps else "numba"
        forward = make_forward(model, config, shape, max_len, not obstacle, threads, ops)
        if not obstacle:
            forward.min_rows, obstacle = linear.settle_min_rows(forward.linears)
        _first_step(forward, layout, settings.model_type)
        report("identify", 0.8)
        info = ModelInfo(
            name=config.name,
            max_model_len=max_len,
            vocab_size=shape.vocab_size,
            eos_token_ids=_eos(model),
            identity=identify(path, settings, config.name),
            layout=layout,
            dtype=config.dtype,
            device=config.device,
            deterministic=not obstacle,
            attention_backend=f"{type(forward).__name__}/{kernels}",
        )

    def reference() -> Reference:
        if not references:
            again = load_model(path, settings, TORCH_DTYPES[config.dtype], config.device)
            references.append(make_reference(again, shape.vocab_size))
        return references[0]

    return Built(info, forward, _describe(obstacle, forward, threads), reference)


def make_forward(
    model: Any,
    config: ModelConfig,
    shape: Shape,
    max_len: int,
    canonical: bool,
    threads: int,
    ops: TorchOps,
) -> Forward:
    """The fused forward for plain decoders, the transformers modules for the rest."""
    attention = Attention(ops, canonical)
    packed = config.device == "cpu" and config.dtype == "float32" and linear.packing_available()
    min_rows = linear.FALLBACK_MIN_ROWS if canonical else 1
    forward: Forward
    if is_plain(model):
        forward = PlainForward(model, ops, attention, max_len, min_rows, packed)
    else:
        pad_threads = threads if canonical else 0
        forward = GenericForward(
            model, ops, attention, shape.num_layers, min_rows, packed, pad_threads
        )
    if packed and forward.linears:
        forward.min_rows = linear.tune_min_rows(forward.linears)
    return forward


def make_ops(config: ModelConfig, threads: int) -> TorchOps:
    """Numba kernels for float32 on a CPU where numba is installed; torch otherwise."""
    if config.device != "cpu":
        return TorchOps(batched=True)
    if config.dtype == "float32":
        try:
            from baton.engine.numba_ops import NumbaOps
            from baton.engine.team_ops import TeamOps
        except (ImportError, RuntimeError):  # absent, or nowhere to keep compiled kernels
            return TorchOps(batched=False)
        return TeamOps(threads) if threads > 1 else NumbaOps()
    return TorchOps(batched=False)


def _first_step(forward: Forward, layout: KVLayout, name: str) -> None:
    """Compile kernels, and turn whatever a model's own code raises into a refusal."""
    try:
        warm(forward, layout)
    except ModelRefused:
        raise
    except Exception as error:
        raise ModelRefused(
            f"{name}: a paged step fails: {type(error).__name__}: {error}"
        ) from error


def _check_device(config: ModelConfig) -> None:
    try:
        device = torch.device(config.device)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"model.device {config.device!r} cannot be used: {error}") from error


def _max_model_len(config: ModelConfig, shape: Shape) -> int:
    if config.max_model_len > shape.max_len:
        raise ConfigError(
            f"model.max_model_len {config.max_model_len} is above the model's {shape.max_len}"
        )
    return config.max_model_len or shape.max_len


def _obstacle(config: ModelConfig) -> str:
    """Why bits cannot be promised, or ""."""
    if not config.deterministic:
        return "model.deterministic is off"
    if config.device != "cpu":
        return f"on {config.device} matrix products depend on the batch"
    if config.dtype != "float32":
        return f"in {config.dtype} matrix products depend on the batch"
    if not linear.packing_available():
        return "this torch lacks the oneDNN packing operators"
    return ""


def _describe(obstacle: str, forward: Forward, threads: int) -> str:
    kind = f"{type(forward).__name__}, {threads} thread{'s' if threads > 1 else ''}"
    if obstacle:
        return f"not deterministic: {obstacle} ({kind})"
    return (
        f"deterministic: packed oneDNN linears of at least {forward.min_rows} rows, "
        f"prefill attention on a 64-row grid, decode rows one by one ({kind})"
    )


def _eos(model: Any) -> tuple[int, ...]:
    """End tokens of the generation settings, else of the configuration."""
    settings = getattr(model, "generation_config", None)
    value = getattr(settings, "eos_token_id", None)
    if value is None:
        value = getattr(model.config, "eos_token_id", None)
    if value is None:
        return ()
    return tuple(int(v) for v in value) if isinstance(value, list | tuple) else (int(value),)
