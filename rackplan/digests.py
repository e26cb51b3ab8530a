"""Digests of the files that a user names: what a result was made from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def digests(texts: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of those of ``texts`` that are files, and of files in folders, by the name typed."""
    found = {}
    for text in texts:
        path = Path(text)
        inner = sorted(path.iterdir()) if path.is_dir() else []
        if any(
            file.name == "config.json" for file in inner
        ):  # of a model: the weights beside it were not read
            inner = [file for file in inner if file.name in ("config.json", "hf_quant_config.json")]
        for name, one in ((text, path), *((f"{text}/{file.name}", file) for file in inner)):
            if one.is_file():
                with one.open("rb") as file:
                    found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
