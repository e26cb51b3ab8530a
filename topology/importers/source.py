"""A file of another tool as text, and as YAML or JSON: what is neither is refused before any importer sees it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from topology.base.errors import InputError, printable
from topology.base.reading import parse_json, parse_yaml, read_bytes
from topology.base.schema import Text, validated

_Key = TypeVar("_Key")
# terminal codes of pasted output, and marks that turn the direction of text
_ESCAPES = re.compile(
    r"\x1b\[[0-9;:?]*[A-Za-z]|\x1b[()][A-Za-z0-9]|\x0f|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")


@dataclass
class Source:
    """One file: ``name`` as messages call it, and its text without terminal codes and carriage returns.

    Its importer adds to ``anomalies`` what is unlike its siblings, to ``readings`` how a figure that can be read in
    two ways was read.
    """

    name: str
    text: str
    anomalies: list[str] = field(default_factory=list)
    readings: list[str] = field(default_factory=list)

    @cached_property
    def lines(self) -> list[str]:
        """The lines; number ``i`` of a message is ``lines[i - 1]``."""
        return self.text.split("\n")

    @cached_property
    def data(self) -> object:
        """The document: JSON where it begins like JSON, else YAML without tags, aliases and duplicate keys.

        Raises
        ------
        InputError
            If it cannot be parsed or is nested too deeply.
        """
        parse = parse_json if self.text.lstrip().startswith(("{", "[")) else parse_yaml
        return parse(self.text, self.name)

    def error(self, line: int | None, problem: str) -> InputError:
        """Return the error for ``problem`` at a line of this file (None: in the file as a whole)."""
        return InputError(f"{self.at(line)}: {problem}")

    def note(self, line: int | None, text: str) -> None:
        """Add to the anomalies."""
        self.anomalies.append(f"{self.at(line)}: {text}")

    def line_of(self, match: re.Match[str]) -> int:
        """Return the number of the line that a match in the text begins in."""
        return 1 + self.text.count("\n", 0, match.start())

    def once(self, lines: dict[_Key, int], key: _Key, line: int, noun: str) -> None:
        """Add a key to those of ``lines``, where it must be new.

        Raises
        ------
        InputError
            If it is not; ``noun`` is what the message calls it.
        """
        if key in lines:
            raise self.error(line, f"duplicate {noun} (first in line {lines[key]}).")
        lines[key] = line

    def at(self, line: int | None) -> str:
        """Return the place of a line (None: the file as a whole), for messages."""
        return self.name if line is None else f"{self.name}: line {line}"


def entries(value: object, where: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the mappings of a list that may be absent, each with its place.

    Raises
    ------
    InputError
        If it is no list of mappings.
    """
    rows = validated(list[dict[Text, Any]] | None, value, where) or []
    return [(f"{where}[{i}]", row) for i, row in enumerate(rows)]


def first_row(data: object) -> dict[Any, Any]:
    """Return the first mapping of a list, which may be wrapped; an empty one where there is none."""
    rows = unwrapped(data)
    row = rows[0] if isinstance(rows, list) and rows else None
    return row if isinstance(row, dict) else {}


def unwrapped(data: object) -> object:
    """Return the list that some tools wrap in an object of one key, else the data."""
    values = list(data.values()) if isinstance(data, dict) and data.keys() <= {"gpu_data", "topology"} else []
    return values[0] if len(values) == 1 and isinstance(values[0], list) else data


def read_source(path: Path) -> Source:
    """Read a file as text.

    Raises
    ------
    InputError
        If it cannot be read, is empty, too long, binary or not UTF-8.
    """
    source = Source(printable(path.name), "")
    try:
        if not path.is_file():
            raise InputError(f"{path}: does not exist or is not a file.")
        raw = read_bytes(path, source.name)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot read it ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise source.error(None, "is UTF-16 text; save it as UTF-8.") from None
        reason = f"byte 0x{raw[error.start]:02x} is not UTF-8; is it a binary file?"
        raise source.error(raw.count(b"\n", 0, error.start) + 1, reason) from None
    text = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\x0c", "\n"))
    source.text = text.replace("\u00a0", " ")
    if not source.text.strip():
        raise source.error(None, "is empty.")
    if control := _CONTROL.search(source.text):
        problem = f"has the control character 0x{ord(control[0]):02x}; is it binary?"
        raise source.error(source.line_of(control), problem)
    return source
