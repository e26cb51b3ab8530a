"""Reading mappings from files strictly: known keys, checked types, and errors that name the place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from topology.errors import InputError
from topology.strict_yaml import strict_yaml

_LONGEST_YAML_BYTES = 32_000_000


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the known names nearest to ``name``, or a list of all of them."""
    choices = sorted(known)
    close = difflib.get_close_matches(name.lower(), choices, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(choices)}."


class Fields:
    """The fields of one mapping, taken one by one; :meth:`done` refuses what nobody asked for."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            raise InputError(f"{where}: expected a mapping of keys to values, found {_kind(data)}.")
        self._data: Mapping[Any, Any] = data
        self._asked: set[str] = set()
        self._known: set[str] = set()  # keys that could be there: what an unknown one may have meant
        self.where = where

    def __contains__(self, key: str) -> bool:
        self._known.add(key)
        return key in self._data

    def at(self, key: str) -> str:
        """Return the place of ``key``, for messages."""
        return f"{self.where}: {key}"

    def get(self, key: str, default: object = None) -> Any:
        """Return the raw value of an optional key."""
        self._asked.add(key)
        return self._data.get(key, default)

    def need(self, key: str) -> Any:
        """Return the raw value of a key that must be there."""
        self._asked.add(key)
        if key not in self._data or self._data[key] is None:
            raise InputError(f"{self.where}: needs the key `{key}`.")
        return self._data[key]

    def text(self, key: str) -> str:
        """Return a text that is not empty."""
        value = self.need(key)
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"{self.at(key)}: {value!r} must be a text.")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty where the key is absent."""
        value = self.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InputError(f"{self.at(key)}: must be a list of texts.")
        return tuple(value)

    def count(self, key: str, *, least: int = 1, most: int = 1_000_000) -> int:
        """Return a whole number from ``least`` to ``most``."""
        return _whole(self.need(key), self.at(key), least, most)

    def counts(self, key: str) -> tuple[int, ...]:
        """Return a list of whole numbers of at least one."""
        value = self.need(key)
        if not isinstance(value, list) or not value:
            raise InputError(f"{self.at(key)}: {value!r} must be a list of whole numbers, like [5, 5, 4, 4].")
        return tuple(_whole(item, self.at(key), 1, 1_000_000) for item in value)

    def number(self, key: str) -> float:
        """Return a finite number greater than zero."""
        return _positive(self.need(key), self.at(key))

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a list of finite numbers greater than zero."""
        value = self.need(key)
        if not isinstance(value, list) or not value:
            raise InputError(f"{self.at(key)}: {value!r} must be a list of numbers, like [1, 4].")
        return tuple(_positive(item, self.at(key)) for item in value)

    def flag(self, key: str) -> bool:
        """Return true or false, false where the key is absent."""
        value = self.get(key, default=False)
        if not isinstance(value, bool):
            raise InputError(f"{self.at(key)}: {value!r} must be true or false.")
        return value

    def sub(self, key: str) -> Fields:
        """Return the mapping under ``key``."""
        return Fields(self.need(key), self.at(key))

    def subs(self, key: str) -> list[Fields]:
        """Return the list of mappings under ``key``, not empty."""
        value = self.need(key)
        if not isinstance(value, list) or not value:
            raise InputError(f"{self.at(key)}: must be a list with at least one entry.")
        return [Fields(item, f"{self.where}: {key}[{i}]") for i, item in enumerate(value)]

    def names(self) -> tuple[str, ...]:
        """Return all keys as texts, and take them as asked for."""
        for key in self._data:
            if not isinstance(key, str):
                raise InputError(f"{self.where}: the key {key!r} must be a text.")
        self._asked.update(self._data)
        return tuple(self._data)

    def done(self) -> None:
        """Refuse keys that nobody asked for."""
        for key in self._data:
            if key not in self._asked:
                raise InputError(
                    f"{self.where}: unknown key `{key}`; {nearest(str(key), self._asked | self._known)}"
                )


def load_yaml(path: Path, where: str) -> object:
    """Read one YAML document.

    Raises
    ------
    InputError
        If the file cannot be read or is not YAML.
    """
    try:
        raw = path.read_bytes()
        if len(raw) > _LONGEST_YAML_BYTES:
            raise InputError(f"{where}: {len(raw)} bytes is too long for a cluster description.")
        text = raw.decode("utf-8")
    except OSError as error:
        raise InputError(f"{where}: cannot read it ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise InputError(f"{where}: is not UTF-8 text.") from None
    return strict_yaml(
        text,
        lambda line, problem: InputError(f"{where}: {'' if line is None else f'line {line}: '}{problem}"),
    )


def _positive(value: object, where: str) -> float:
    """Return a finite number greater than zero."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise InputError(f"{where}: {value!r} must be a number greater than zero.")
    return float(value)


def _whole(value: object, where: str, least: int, most: int) -> int:
    """Return a whole number within limits."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{where}: {value!r} must be a whole number from {least} to {most}.")
    return value


def _kind(data: object) -> str:
    """Return the name of what was found, for people."""
    names = {type(None): "nothing", list: "a list", str: "a text", int: "a number", float: "a number"}
    return names.get(type(data), type(data).__name__)
