"""Text files of other people's making, read whole, within a limit, and as JSON or YAML without surprises.

Nothing in a file is run, and nothing is allocated for what a number in it promises. JSON: no key twice, no NaN.
YAML: no tags, no aliases, no key twice, a few levels of nesting.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from topology.base.errors import InputError
from topology.base.reading import parse_json, parse_yaml

LONGEST_BYTES = 32 << 20
"""A plan of 94 layers with 4,096 slots takes 3 MB, in vllm-ascend's form with a slot a device 17."""

LONGEST_YAML_BYTES = 4 << 20
"""The same in TensorRT-LLM's form takes 3 MB; YAML is read a hundred times slower than JSON."""

DEEPEST = 6

MOST_YAML_PARTS = 600_000
"""Commas and lines of a YAML file, some 9 microseconds each; that plan has 385,000."""

MOST_PARTS = 4_000_000
"""Lists, mappings and texts of a JSON file, some 100 bytes each; that plan of a slot a device has two million."""


def read_text(path: Path, longest: int | None = None) -> str:
    """Return the text of a regular file.

    Raises
    ------
    InputError
        If it is none, is empty, longer than ``longest`` bytes (:data:`LONGEST_BYTES`) or not UTF-8.
    """
    require_file(path)
    try:
        size = path.stat().st_size
        if size > (LONGEST_BYTES if longest is None else longest):
            raise InputError(f"{path}: {size:,} bytes, more than any plan of experts; is it a recording?")
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text, so not a plan in this form.") from None
    if not text.strip():
        raise InputError(f"{path}: empty.")
    return text


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


def read_json(path: Path) -> object:
    """Return the JSON value of a file.

    Raises
    ------
    InputError
        If it is not one strict JSON value.
    """
    return _parse(read_text(path), str(path))


def read_json_lines(path: Path) -> Iterator[tuple[int, object]]:
    """Yield line number and value of each line that is not blank.

    Raises
    ------
    InputError
        If a line is not one strict JSON value.
    """
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield number, _parse(line, f"{path}: line {number}")


def _parse(text: str, where: str) -> object:
    if sum(map(text.count, '[{"')) > MOST_PARTS:
        raise InputError(f"{where}: more than {MOST_PARTS:,} lists and texts, which no plan of experts has.")
    value: object = parse_json(text, where)
    return value


def read_yaml(path: Path) -> object:
    """Return the one document of a YAML file, as a safe loader reads it.

    Raises
    ------
    InputError
        If it is not YAML, or has tags, aliases, a key twice, or deep nesting.
    """
    text = read_text(path, LONGEST_YAML_BYTES)
    if sum(map(text.count, ",\n")) > MOST_YAML_PARTS:
        raise InputError(f"{path}: more than {MOST_YAML_PARTS:,} values, which no plan of experts has.")
    return parse_yaml(text, str(path), deepest=DEEPEST)
