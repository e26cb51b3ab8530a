"""How commands write: JSON on standard output, result folders that a failed command leaves as they were."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from topology.errors import InputError
from topology.files import ensure_folder

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


def write_together(folder: Path, writers: Mapping[str, Callable[[Path], None]]) -> None:
    """Write files into ``folder``: all of them are made first, so that none changes where one cannot be made.

    ``writers`` has, by the name of each file, what writes it to a path of that name.

    Raises
    ------
    InputError
        If one of them cannot be written.
    """
    for name in writers:
        if (folder / name).is_dir():
            raise InputError(f"{folder / name}: it is a folder; choose another -o.")
    with TemporaryDirectory(dir=folder, prefix=".rackplan-") as made:
        aside = Path(made)
        for name, write in writers.items():
            try:
                write(aside / name)
            except InputError as error:
                message = str(error).replace(f"{aside}{os.sep}", f"{folder}{os.sep}")
                raise InputError(message) from None
        for name in writers:
            (aside / name).replace(folder / name)
