"""Identity of a served model by content, as far as it can be had quickly."""

import hashlib
from pathlib import Path

from baton.core.digest import digest
from baton.core.layout import ModelIdentity
from baton.errors import ConfigError

_EDGE_NBYTES = 1 << 20
"""Read at both ends of each weight file: a header with every tensor's name and place, and the last
tensors. Hashing all of a large checkpoint would take minutes."""
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")
_SHAPES = ("config.json",)
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt")


def model_identity(folder: str, name: str, revision: str = "", adapter: str = "") -> ModelIdentity:
    """Identity of the model in `folder`. Raises ConfigError where there is nothing to compare."""
    path = Path(folder)
    if not path.is_dir():
        if not revision:
            raise ConfigError(
                f"model {folder!r} is no folder and has no revision; pass the folder that holds "
                "it, or --revision COMMIT, so that both sides provably serve the same weights"
            )
        return ModelIdentity(
            model=name, checkpoint_hash=digest([folder, revision]), tokenizer_hash=digest(revision)
        )
    weights = sorted(file for pattern in _WEIGHTS for file in path.glob(pattern))
    if not weights:
        raise ConfigError(f"{folder}: no weight files ({', '.join(_WEIGHTS)})")
    shapes = [path / shape for shape in _SHAPES]
    return ModelIdentity(
        model=name,
        checkpoint_hash=digest([_fingerprint(file) for file in (*shapes, *weights)]),
        tokenizer_hash=digest([_fingerprint(path / name) for name in _TOKENIZERS]),
        adapter_hash=adapter,
    )


def _fingerprint(file: Path) -> list[str | int]:
    if not file.exists():
        return [file.name, -1]
    size = file.stat().st_size
    found = hashlib.blake2b(digest_size=16)
    with file.open("rb") as opened:
        found.update(opened.read(_EDGE_NBYTES))
        if size > 2 * _EDGE_NBYTES:
            opened.seek(-_EDGE_NBYTES, 2)
        found.update(opened.read())
    return [file.name, size, found.hexdigest()]
