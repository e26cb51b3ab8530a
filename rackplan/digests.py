"""Digests of the files that a user names: what a result was made from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

_MODEL = ("config.json", "hf_quant_config.json")


def digests(texts: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of those of ``texts`` that are files, and of files in folders, by the name typed."""
    found = {}
    for text in texts:
        path = Path(text)
        inner = read_in(path) if path.is_dir() else []
        for name, one in ((text, path), *((f"{text}/{file.name}", file) for file in inner)):
            if one.is_file():
                with one.open("rb") as file:
                    found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def read_in(folder: Path) -> list[Path]:
    """Return the files of a folder that are read: of a model's not the weights that lie beside its configuration."""
    files = sorted(one for one in folder.iterdir() if one.is_file())
    model = any(one.name == _MODEL[0] for one in files)
    return [one for one in files if one.name in _MODEL] if model else files
