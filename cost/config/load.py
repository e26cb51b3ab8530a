"""Read a JSON object from a file, strictly: one object, no duplicate keys, no NaN."""

from __future__ import annotations

from pathlib import Path

from topology.errors import InputError
from topology.reading import parse_json

_MOST_BYTES = 32 << 20


def _text(path: Path) -> str:
    """Return the file's text, or say in one line why there is none."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; give the config.json in it.")
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is larger than {_MOST_BYTES >> 20} MiB; that is no config.json.")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}).") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None


def load_object(path: Path) -> dict[str, object]:
    """Return the JSON object in ``path``.

    Raises
    ------
    InputError
        If the file cannot be read or is not one JSON object.
    """
    text = _text(path)
    if not text.strip():
        raise InputError(f"{path} is empty.")

    def error(line: int | None, problem: str) -> InputError:
        return InputError(f"{path}: {problem}" if line is None else f"{path}, line {line}, {problem}")

    found = parse_json(text, error, infinite=True)  # real configs hold infinity as a limit
    if not isinstance(found, dict):
        raise InputError(f"{path} holds a JSON {type(found).__name__}; a config.json is an object.")
    return found
