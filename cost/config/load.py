"""Read a JSON object from a file, strictly: one object, no duplicate keys, no NaN."""

from __future__ import annotations

import json
from pathlib import Path

from topology.errors import InputError
from topology.strict_json import unique_keys

_MOST_BYTES = 32 << 20


_unique = unique_keys(lambda key: ValueError(f"the key {key!r} stands twice in one object"))


def _constant(name: str) -> float:
    """Let infinities through, which real configs hold as limits; a key that is read refuses them."""
    if name == "NaN":
        message = "NaN is no JSON number"
        raise ValueError(message)
    return float(name)


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
    try:
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}, line {error.lineno}, column {error.colno}: {error.msg}; not valid JSON."
        ) from None
    except RecursionError:
        raise InputError(f"{path} is nested too deeply to be a config.json.") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}.") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} holds a JSON {type(found).__name__}; a config.json is an object.")
    return found
