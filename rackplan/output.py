"""How commands write: JSON on standard output, result folders that a failed command leaves as they were."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from topology.files import ensure_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["output_folder", "print_json", "print_text"]

WIDTH = 100
"""Summaries are at most this many columns wide."""


def print_json(data: dict[str, Any]) -> None:
    """Print one object on standard output."""
    sys.stdout.write(json.dumps(data, indent=2, allow_nan=False) + "\n")


def print_text(text: str) -> None:
    """Print lines on standard output."""
    sys.stdout.write(text.rstrip("\n") + "\n")


@contextmanager
def output_folder(path: Path) -> Iterator[Path]:
    """Create ``path`` for results; folders made for a command that fails are removed again.

    Raises
    ------
    InputError
        If it is a file or not writable.
    """
    made = []
    missing = path
    while not missing.exists() and missing != missing.parent:
        made.append(missing)
        missing = missing.parent
    try:
        ensure_folder(path)
        yield path
    except BaseException:
        for folder in made:
            try:
                folder.rmdir()
            except OSError:
                break
        raise
