"""Distinguish the weights of two models by samples of their files, in milliseconds."""

from __future__ import annotations

import hashlib
from pathlib import Path

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_WHOLE = ("config.json", "quantize_config.json", "hf_quant_config.json")
_SAMPLES, _SAMPLE_BYTES = 64, 4096


def weight_revision(folder: Path) -> str:
    """Return a digest of the weight files' sizes, beginnings, and evenly spaced samples.

    Training changes nearly every weight, so the samples of two revisions also differ. Raises ValueError if a folder
    contains no weights.
    """
    digest = hashlib.sha256(b"headway weights 1\0")
    weights = sorted(path for path in folder.iterdir() if path.suffix in _WEIGHTS and path.is_file())
    if not weights:
        raise ValueError(f"{folder} has no weight files; set weight_revision in kv_connector_extra_config")
    for name in _WHOLE:
        if (folder / name).is_file():
            _add(digest, name, (folder / name).read_bytes())
    for path in weights:
        size = path.stat().st_size
        _add(digest, path.name, str(size).encode())
        with path.open("rb") as file:
            for number in range(_SAMPLES):
                file.seek(max(0, size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
                _add(digest, "", file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _add(digest: hashlib._Hash, name: str, data: bytes) -> None:
    for part in (name.encode(), data):
        # Lengths are hashed too, so that names and contents cannot run into each other.
        digest.update(len(part).to_bytes(8, "big") + part)
