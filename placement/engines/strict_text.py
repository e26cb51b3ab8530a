"""Engines' files, read whole as JSON or YAML without surprises: nothing is run, duplicate keys are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from topology.base.errors import InputError
from topology.base.reading import parse_json, parse_yaml, read_text

DEEPEST = 6
MOST_CELLS = 1 << 22
"""Of a plan of experts: 94 layers of 4,096 slots are a tenth of that."""


def require_file(path: Path) -> None:
    """Check that a path is that of a regular file.

    Raises
    ------
    InputError
        If it is not.
    """
    if "\0" in str(path):
        raise InputError("the path holds a zero byte.")
    if not path.is_file():
        raise InputError(f"{path}: {'not a regular file' if path.exists() else 'there is no such file'}.")


def _text(path: Path) -> str:
    """Return the text of a regular file that is not empty."""
    require_file(path)
    text = read_text(path, str(path))
    if not text.strip():
        raise InputError(f"{path}: empty.")
    return text


def read_json(path: Path) -> object:
    """Return the JSON value of a file.

    Raises
    ------
    InputError
        If it is not one strict JSON value.
    """
    value: object = parse_json(_text(path), str(path))
    return value


def read_json_lines(path: Path) -> Iterator[tuple[int, object]]:
    """Yield line number and value of each line that is not blank.

    Raises
    ------
    InputError
        If a line is not one strict JSON value.
    """
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            yield number, parse_json(line, f"{path}: line {number}")


def read_yaml(path: Path) -> object:
    """Return the one document of a YAML file, as a safe loader reads it.

    Raises
    ------
    InputError
        If it is not YAML, or has tags, aliases, duplicate keys, or deep nesting.
    """
    return parse_yaml(_text(path), str(path), deepest=DEEPEST)
