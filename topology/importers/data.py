"""YAML and JSON of somebody else's: safely read, then taken apart field by field with the place in every error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from topology.errors import InputError
from topology.importers.source import Source
from topology.reading import DEEPEST, parse_json, parse_yaml, shown

_MOST_VALUES = 2_000_000


class Data:
    """A mapping with the place it stands at; unlike :class:`topology.reading.Fields` it leaves other keys alone."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise InputError(f"{where}: expected a mapping, found {shown(value)}.")
        self._value: dict[Any, Any] = value
        self.where = where

    def has(self, key: str) -> bool:
        """Whether the key is there, with a value."""
        return self._value.get(key) is not None

    def get(self, key: str) -> Any:
        """Return the raw value, None where there is none."""
        return self._value.get(key)

    def need(self, key: str) -> Any:
        """Return the raw value of a key that must be there."""
        if not self.has(key):
            raise InputError(f"{self.where}: needs the key `{key}`.")
        return self._value[key]

    def text(self, key: str) -> str:
        """Return a text (a number is taken as its digits: names like 17 are not quoted by everybody)."""
        value = self.need(key)
        if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
            raise InputError(f"{self.where}: {key}: {shown(value)} must be a text.")
        return str(value).strip()

    def whole(self, key: str, *, least: int = 0, most: int = 1_000_000) -> int:
        """Return a whole number within limits."""
        value = self.need(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InputError(
                f"{self.where}: {key}: {shown(value)} must be a whole number from {least} to {most}."
            )
        return value

    def number(self, key: str) -> float:
        """Return a finite number greater than zero."""
        value = self.need(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            raise InputError(f"{self.where}: {key}: {shown(value)} must be a number greater than zero.")
        return float(value)

    def items(self, key: str) -> list[Any]:
        """Return a list, empty where the key is absent."""
        value = self._value.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise InputError(f"{self.where}: {key}: {shown(value)} must be a list.")
        return value

    def sub(self, key: str) -> Data:
        """Return the mapping under ``key``."""
        return Data(self.need(key), f"{self.where}: {key}")

    def subs(self, key: str) -> list[Data]:
        """Return the list of mappings under ``key``, empty where it is absent."""
        return [Data(item, f"{self.where}: {key}[{i}]") for i, item in enumerate(self.items(key))]

    def __iter__(self) -> Iterator[str]:
        """The keys as texts."""
        return iter([str(key) for key in self._value])


class _Loaded:
    """A whole document, list or mapping."""

    def __init__(self, value: object, source: Source) -> None:
        self.value = value
        self.source = source

    def top_list(self) -> list[Any]:
        """Return a list at the top."""
        if not isinstance(self.value, list):
            raise self.source.error(None, f"expected a list at the top, found {shown(self.value)}.")
        return self.value

    def mapping(self) -> Data:
        """Return a mapping at the top."""
        return Data(self.value, self.source.name)


def load_data(source: Source) -> _Loaded:
    """Read a document, JSON where it begins like JSON, else YAML without tags, aliases and duplicate keys.

    Raises
    ------
    InputError
        If it cannot be parsed, is nested too deeply or holds too much.
    """
    text = source.text.lstrip()
    value = (
        parse_json(source.text, source.error)
        if text.startswith(("{", "["))
        else parse_yaml(source.text, source.error)
    )
    _measure(source, value)
    return _Loaded(value, source)


def _measure(source: Source, value: object) -> None:
    """Refuse data that are too deep or too many to walk."""
    level: list[object] = [value]
    count = 0
    for _ in range(DEEPEST):
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
        ]
        count += len(level)
        if count > _MOST_VALUES:
            raise source.error(None, f"holds more than {_MOST_VALUES} values.")
        if not level:
            return
    raise source.error(None, f"is nested more than {DEEPEST} deep.")
