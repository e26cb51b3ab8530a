"""Typed access to the keys of a config: every key is checked when read, and what was read is remembered."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn

from topology.errors import InputError
from topology.reading import shown

# No published model comes near these; a value beyond them is a slip, and would only exhaust memory.
MOST = 1 << 24
MOST_LAYERS = 1024


REQUIRED: Final = None
"""The default of a key without default."""


class Facts:
    """The keys of one config object: of somebody else's, so unlike :class:`topology.reading.Fields` null is absent.

    Keys that nobody asked for are judged at the end (:func:`cost.config.unmodelled.check_unread`), not one by one.

    Parameters
    ----------
    config:
        The object, as JSON gave it.
    where:
        How messages call it (a path or a name, and the section).
    """

    def __init__(self, config: Mapping[str, object], where: str) -> None:
        self.config = config
        self.where = where
        self.used: set[str] = set()

    def fail(self, key: str, must: str) -> NoReturn:
        """Raise InputError: the value of ``key`` is not what it ``must`` be."""
        raise InputError(f"{self.where}: {key} is {shown(self.config.get(key))}; it must be {must}.")

    def refuse(self, why: str) -> NoReturn:
        """Raise InputError naming the part of the architecture that is not modelled."""
        raise InputError(f"{self.where}: {why}")

    def ignore(self, *keys: str) -> None:
        """Say that ``keys`` are known and do not change what is counted."""
        self.used.update(keys)

    def has(self, key: str) -> bool:
        """Whether ``key`` is there and not null."""
        self.used.add(key)
        return self.config.get(key) is not None

    def _value(self, key: str, default: object = REQUIRED) -> Any:
        self.used.add(key)
        value = self.config.get(key)
        if value is not None:
            return value
        if default is REQUIRED:
            missing = "is null" if key in self.config else "is missing"
            kind = self.config.get("model_type")
            model = f"a {kind} model" if isinstance(kind, str) else "a model"
            raise InputError(f"{self.where}: {key} {missing}, and {model} cannot be read without it.")
        return default

    def count(self, *keys: str, default: int | None = REQUIRED, least: int = 1, most: int = MOST) -> int:
        """Return the whole number under the first of ``keys`` that is there (they are names of one thing)."""
        present = [key for key in keys if self.config.get(key) is not None]
        self.used.update(keys)
        key = present[0] if present else keys[0]
        for other in present[1:]:
            if self.config[other] != self.config[key]:
                self.fail(other, f"the same as {key} ({shown(self.config[key])}), which means the same")
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, "a whole number")
        if not least <= value <= most:
            self.fail(key, f"between {least:,} and {most:,}")
        return value

    def whole(self, *keys: str, default: int | None = REQUIRED, most: int = MOST) -> int:
        """Return a whole number that may be 0."""
        return self.count(*keys, default=default, least=0, most=most)

    def count_or_none(self, key: str) -> int | None:
        """Return a positive whole number, or None where the key is null or absent."""
        return self.count(key) if self.has(key) else None

    def flag(self, key: str, *, default: bool | None = REQUIRED) -> bool:
        """Return true or false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            self.fail(key, "true or false")
        return value

    def text(self, key: str, default: str | None = REQUIRED) -> str:
        """Return a string."""
        value = self._value(key, default)
        if not isinstance(value, str):
            self.fail(key, "a string")
        return value

    def choice(self, key: str, allowed: Collection[str], default: str | None = REQUIRED) -> str:
        """Return a string that is one of ``allowed``."""
        value = self.text(key, default)
        if value not in allowed:
            self.fail(key, f"one of {', '.join(sorted(allowed))}")
        return value

    def items(self, key: str) -> list[object]:
        """Return a list."""
        value = self._value(key)
        if not isinstance(value, list):
            self.fail(key, "a list")
        return value

    def layer_ids(self, key: str, layers: int) -> frozenset[int]:
        """Return the layer ids listed under ``key`` (none where it is null or absent)."""
        if not self.has(key):
            return frozenset()
        ids = self.items(key)
        for item in ids:
            if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < layers:
                self.fail(key, f"a list of layer ids from 0 to {layers - 1}, and {shown(item)} is none")
        return frozenset(item for item in ids if isinstance(item, int))

    def per_layer(self, key: str, layers: int, allowed: Collection[object]) -> list[object]:
        """Return a list with one entry of ``allowed`` a layer."""
        values = self.items(key)
        if len(values) != layers:
            raise InputError(
                f"{self.where}: {key} has {len(values)} entries for {layers} layers; give one a layer."
            )
        for index, value in enumerate(values):
            if isinstance(value, bool) or not any(
                value == one and type(value) is type(one) for one in allowed
            ):
                names = ", ".join(str(one) for one in allowed)
                raise InputError(
                    f"{self.where}: {key}[{index}] is {shown(value)}, which is not modelled; known: {names}."
                )
        return values

    def layers_with(self, key: str, layers: int, wanted: object, *others: object) -> list[bool]:
        """Return whether each layer's entry under ``key`` is ``wanted``; it may also be one of ``others``."""
        return [value == wanted for value in self.per_layer(key, layers, (*others, wanted))]

    def section(self, key: str) -> Facts:
        """Return the object under ``key``."""
        value = self._value(key)
        if not isinstance(value, Mapping):
            self.fail(key, "an object")
        return Facts(value, f"{self.where}, {key}")

    def layers(self, key: str = "num_hidden_layers") -> int:
        """Return the number of layers."""
        return self.count(key, most=MOST_LAYERS)

    def divides(self, part: int, whole: int, what: str) -> int:
        """Return ``whole // part``; ``what`` says which two do not fit where there is a rest."""
        if whole % part:
            raise InputError(f"{self.where}: {what} ({whole:,} is not a multiple of {part:,}).")
        return whole // part
