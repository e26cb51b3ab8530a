"""Digests of the inputs of a result: user files, and rackplan's code and figures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_MODEL = ("config.json", "hf_quant_config.json")


def digests(texts: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of all ``texts`` that are files, and of files in folders, by the name as typed."""
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
    """Return the files that are read from a folder; for models, not the weights."""
    files = sorted(one for one in folder.iterdir() if one.is_file())
    model = any(one.name == _MODEL[0] for one in files)
    return [one for one in files if one.name in _MODEL] if model else files


_PACKAGES = ("cost", "placement", "rackplan", "topology")


@cache
def code_digest(root: Path = Path(__file__).parents[1]) -> str:
    """Return the SHA-256 of all files of the four packages below ``root``: sources, catalog, calibration, web files.

    Each file counts by its path relative to ``root`` and its content, so that a checkout and an installed wheel of
    it agree. Bytecode and hidden files do not count. Read once per process.
    """
    found = hashlib.sha256()
    files = [file for package in _PACKAGES for file in (root / package).rglob("*") if file.is_file()]
    for name, file in sorted((file.relative_to(root).as_posix(), file) for file in files):
        if not (name.endswith(".pyc") or "/__pycache__/" in name or "/." in name):
            found.update(name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()
