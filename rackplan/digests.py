"""Digests of the inputs of a result: user files, and rackplan's code and figures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_MODEL_FILES = ("config.json", "hf_quant_config.json")
"""Files that are read from a model's folder; the first marks it as such."""


def digests(texts: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of all ``texts`` that are files, and of files in folders, by the name as typed."""
    sha256 = {}
    for text in texts:
        path = Path(text)
        inner = read_in(path) if path.is_dir() else []
        for name, file in ((text, path), *((f"{text}/{file.name}", file) for file in inner)):
            if file.is_file():
                with file.open("rb") as stream:
                    sha256[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return sha256


def read_in(folder: Path) -> list[Path]:
    """Return the files that are read from a folder; for models, not the weights."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    model = any(file.name == _MODEL_FILES[0] for file in files)
    return [file for file in files if file.name in _MODEL_FILES] if model else files


_PACKAGES = ("cost", "placement", "rackplan", "topology")


@cache
def code_digest(root: Path = Path(__file__).parents[1]) -> str:
    """Return the SHA-256 of all files of the four packages below ``root``: sources, catalog, calibration, web files.

    Each file counts by its path relative to ``root`` and its content, so that a checkout and an installed wheel of
    it agree. Bytecode and hidden files do not count. Read once per process.
    """
    hasher = hashlib.sha256()
    files = [file for package in _PACKAGES for file in (root / package).rglob("*") if file.is_file()]
    for name, file in sorted((file.relative_to(root).as_posix(), file) for file in files):
        if not (name.endswith(".pyc") or "/__pycache__/" in name or "/." in name):
            hasher.update(name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return hasher.hexdigest()
