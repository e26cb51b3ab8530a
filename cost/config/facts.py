"""Validated access to the keys of a config, with a record of the keys read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NoReturn

from topology.base.errors import InputError
from topology.base.reading import shown
from topology.base.values import require_flag, require_list, require_text, require_whole, wrong

MAX_WHOLE = 1 << 24
"""The largest whole number of a config. No published model comes near this or :data:`MAX_BY_KEY`; a value beyond is a
slip, and would only exhaust time and memory."""
MAX_BY_KEY: Final[Mapping[str, int]] = {
    "layers": 1_000,  # 126 in Llama 3.1 405B, which merges stack a few times
    "heads": 4_096,  # 256 in the Mamba layers of Nemotron 3 Ultra
    "experts": 4_096,  # 2,048 in Switch-C, 896 in Kimi K3
    "vocab_size": 1 << 22,  # 1 million in XLM-V, 262,144 in Gemma
}
"""The largest counts by the last word of their keys."""


REQUIRED: Final = None
"""The default of a key without default."""


class Facts:
    """The keys of one config object, read one by one; null is absent, as in other people's files.

    Keys that were not read are judged at the end (:func:`cost.config.unmodelled.check_unread`), not refused.
    """

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, Mapping):
            raise wrong(data, where, "a mapping of keys to values")
        self.data: Mapping[str, Any] = data
        self.known: set[str] = set()
        self.where = where

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        self.known.add(key)
        return self.data.get(key) is not None

    def ignore(self, *keys: str) -> None:
        """Mark ``keys`` as known and without effect on cost."""
        self.known.update(keys)

    def must_be(self, key: str, expected: str) -> NoReturn:
        """Raise InputError: the value of ``key`` is not what it must be."""
        raise wrong(self.data.get(key), f"{self.where}: {key}", expected)

    def refuse(self, why: str) -> NoReturn:
        """Raise InputError naming the part of the architecture that is not modelled."""
        raise InputError(f"{self.where}: {why}")

    def need(self, key: str) -> Any:
        """Return the raw value of a key that a model cannot be read without."""
        if not self.has(key):
            missing = "is null" if key in self.data else "is missing"
            kind = self.data.get("model_type")
            model = f"a {kind} model" if isinstance(kind, str) else "a model"
            self.refuse(f"{key} {missing}, and {model} cannot be read without it.")
        return self.data[key]

    def sub(self, key: str) -> Facts:
        """Return the mapping under ``key``."""
        return Facts(self.need(key), f"{self.where}: {key}")

    def one_of(self, *keys: str) -> str:
        """Return the first of ``keys`` that is there: they are names of one thing, so all must say the same."""
        self.ignore(*keys)
        chosen, *synonyms = [key for key in keys if self.has(key)] or keys[:1]
        for synonym in synonyms:
            if self.data[synonym] != self.data[chosen]:
                self.must_be(
                    synonym, f"the same as {chosen} ({shown(self.data[chosen])}), which means the same"
                )
        return chosen

    def rename(self, names: Mapping[str, str]) -> None:
        """Give keys that are there other names; where both are there, they must say the same."""
        for old, new in names.items():
            if self.has(old):
                self.one_of(old, new)
                self.data = {**self.data, new: self.data[old]}

    def text(self, key: str, default: str | None = REQUIRED) -> str:
        """Return a text that is not empty."""
        if default is not None and not self.has(key):
            return default
        return require_text(self.need(key), f"{self.where}: {key}")

    def choice(self, key: str, known: Iterable[str], default: str | None = REQUIRED) -> str:
        """Return a text that is one of ``known``."""
        value = self.text(key, default)
        if value not in known:
            self.refuse(f"{key}: {shown(value)} is not one of {', '.join(known)}.")
        return value

    def count(
        self, key: str, default: int | None = REQUIRED, *, least: int = 1, most: int | None = None
    ) -> int:
        """Return a whole number from ``least`` to ``most`` (by default of :data:`MAX_BY_KEY`); 8.0 is one."""
        if default is not None and not self.has(key):
            return default
        value = self.need(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if most is None:
            most = next((bound for word, bound in MAX_BY_KEY.items() if key.endswith(word)), MAX_WHOLE)
        return require_whole(value, f"{self.where}: {key}", least, most)

    def whole(self, key: str, default: int | None = REQUIRED, *, most: int | None = None) -> int:
        """Return a whole number that may be 0."""
        return self.count(key, default, least=0, most=most)

    def count_or_none(self, key: str) -> int | None:
        """Return a positive whole number, or None where the key is null or absent."""
        return self.count(key) if self.has(key) else None

    def flag(self, key: str, default: bool | None = REQUIRED) -> bool:
        """Return true or false."""
        if default is not None and not self.has(key):
            return default
        return require_flag(self.need(key), f"{self.where}: {key}")

    def items(self, key: str) -> list[Any]:
        """Return a list that must be there."""
        return require_list(self.need(key), f"{self.where}: {key}")

    def names(self) -> list[str]:
        """Return all keys, and take them as known."""
        self.ignore(*(require_text(key, self.where) for key in self.data))
        return list(self.data)

    def listed(self, key: str, layers: int) -> list[bool]:
        """Return whether each layer's id is listed under ``key``, which must be there."""
        ids = self.items(key)
        for item in ids:
            if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < layers:
                self.must_be(key, f"a list of layer ids from 0 to {layers - 1}, and {shown(item)} is none")
        known = set(ids)
        return [index in known for index in range(layers)]

    def per_layer(self, key: str, layers: int, allowed: Collection[object]) -> list[object]:
        """Return a list with one entry of ``allowed`` a layer."""
        values = self.items(key)
        if len(values) != layers:
            self.refuse(f"{key} has {len(values)} entries for {layers} layers; give one a layer.")
        for index, value in enumerate(values):
            if not any(value == entry and type(value) is type(entry) for entry in allowed):
                names = ", ".join(str(entry) for entry in allowed)
                self.refuse(f"{key}[{index}] is {shown(value)}, which is not modelled; known: {names}.")
        return values

    def layers_with(self, key: str, layers: int, entry: object, *alternatives: object) -> list[bool]:
        """Return whether each layer's entry under ``key`` is ``entry``; it may also be one of ``alternatives``."""
        return [value == entry for value in self.per_layer(key, layers, (*alternatives, entry))]

    def layers(self, key: str = "num_hidden_layers") -> int:
        """Return the number of layers."""
        return self.count(key)

    def divides(self, part: int, total: int, problem: str) -> int:
        """Return ``total // part``; ``problem`` says which two do not fit where there is a rest."""
        if total % part:
            self.refuse(f"{problem} ({total:,} is not a multiple of {part:,}).")
        return total // part
