"""Prepared model folders: published by one rename, described by a manifest of sizes and hashes."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

MANIFEST = "baton-manifest.json"
_FORMAT = 1


def baton_home() -> Path:
    """Root of Baton's files: `$BATON_HOME`, else `~/.cache/baton`."""
    return Path(os.environ.get("BATON_HOME") or Path.home() / ".cache" / "baton")


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, as hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_complete(folder: Path) -> bool:
    """True when every file that the manifest names is there with its size and its hash."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        files: dict[str, list[object]] = manifest["files"]
        return manifest["format"] == _FORMAT and all(
            (folder / name).stat().st_size == size and file_sha256(folder / name) == sha
            for name, (size, sha) in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def publish(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return `folder`, made by `build(temporary folder)` unless it is already complete.

    Two processes never build at once (file lock), and a reader sees the whole folder or none: the
    temporary folder is described by its manifest and then renamed. A torn folder is built again.
    """
    from filelock import FileLock

    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(folder.name + ".lock")):
        if is_complete(folder):
            return folder
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            build(temporary)
            _write_manifest(temporary)
            temporary.chmod(0o755)
            if folder.exists():
                shutil.rmtree(folder)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _write_manifest(folder: Path) -> None:
    files = {
        path.name: [path.stat().st_size, file_sha256(path)]
        for path in sorted(folder.iterdir())
        if path.is_file()
    }
    text = json.dumps({"format": _FORMAT, "files": files}, indent=1)
    (folder / MANIFEST).write_text(text)
