"""A file of somebody else's, read as text: what is not text is refused before any parser sees it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from topology.errors import InputError

_LONGEST_BYTES = 64_000_000
_LONGEST_LINE = 1_000_000
_ESCAPES = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]|\x1b[()][A-Za-z0-9]|\x0f")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")


@dataclass(frozen=True)
class Source:
    """One file: ``name`` as messages call it, and its text without terminal codes and carriage returns."""

    name: str
    text: str

    @property
    def lines(self) -> list[str]:
        """The lines; number ``i`` of a message is ``lines[i - 1]``."""
        return self.text.split("\n")

    def error(self, line: int | None, problem: str) -> InputError:
        """Return the error for ``problem`` at a line of this file (None: in the file as a whole)."""
        return InputError(
            f"{self.name}: {problem}" if line is None else f"{self.name}: line {line}: {problem}"
        )


def read_source(path: Path, name: str | None = None) -> Source:
    """Read a file as text.

    Raises
    ------
    InputError
        If it cannot be read, is empty, too long, binary or not UTF-8.
    """
    shown = path.name if name is None else name
    try:
        if not path.is_file():
            raise InputError(f"{path}: does not exist or is not a file.")
        if path.stat().st_size > _LONGEST_BYTES:
            raise InputError(f"{shown}: {path.stat().st_size} bytes; at most {_LONGEST_BYTES} are read.")
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read it ({error.strerror}).") from None
    return Source(shown, _decoded(raw, shown))


def _decoded(raw: bytes, name: str) -> str:
    """Return the text of a file, or say why it is none."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{name}: is UTF-16 text; save it as UTF-8.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{name}: line {line}: byte 0x{raw[error.start]:02x} is not UTF-8; is it a binary file?"
        ) from None
    text = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\x0c", "\n"))
    text = text.replace("\u00a0", " ")
    if not text.strip():
        raise InputError(f"{name}: is empty.")
    if bad := _CONTROL.search(text):
        line = text.count("\n", 0, bad.start()) + 1
        raise InputError(f"{name}: line {line}: has the control character 0x{ord(bad[0]):02x}; is it binary?")
    longest = max(text.split("\n"), key=len)
    if len(longest) > _LONGEST_LINE and not text.lstrip().startswith(("{", "[", "<")):
        raise InputError(f"{name}: has a line of {len(longest)} characters; is it such a file?")
    return text
