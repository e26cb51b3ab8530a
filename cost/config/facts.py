"""The keys of a config: checked when read as any input is, and what was read is remembered."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NoReturn

from topology.base.errors import InputError
from topology.base.reading import Fields, shown

# No published model comes near these; a value beyond them is a slip, and would only exhaust memory.
MOST = 1 << 24


REQUIRED: Final = None
"""The default of a key without default."""


class Facts(Fields):
    """The keys of one config object: of somebody else's, so unlike in other input null is absent.

    Keys that nobody asked for are judged at the end (:func:`cost.config.unmodelled.check_unread`), not refused.
    """

    most = MOST

    def __contains__(self, key: str) -> bool:
        self.asked.add(key)
        return self.data.get(key) is not None

    def refuse(self, why: str) -> NoReturn:
        """Raise InputError naming the part of the architecture that is not modelled."""
        raise InputError(f"{self.where}: {why}")

    def ignore(self, *keys: str) -> None:
        """Say that ``keys`` are known and do not change what is counted."""
        self.asked.update(keys)

    def need(self, key: str) -> Any:
        """Return the raw value of a key that a model cannot be read without."""
        if key in self:
            return self.data[key]
        missing = "is null" if key in self.data else "is missing"
        kind = self.data.get("model_type")
        model = f"a {kind} model" if isinstance(kind, str) else "a model"
        raise InputError(f"{self.where}: {key} {missing}, and {model} cannot be read without it.")

    def one_of(self, *keys: str) -> str:
        """Return the first of ``keys`` that is there: they are names of one thing, so all must say the same."""
        self.ignore(*keys)
        first, *others = [key for key in keys if key in self] or keys[:1]
        for other in others:
            if self.data[other] != self.data[first]:
                self.must_be(other, f"the same as {first} ({shown(self.data[first])}), which means the same")
        return first

    def whole(self, key: str, default: int | None = REQUIRED, *, most: int = MOST) -> int:
        """Return a whole number that may be 0."""
        return self.count(key, default, least=0, most=most)

    def count_or_none(self, key: str) -> int | None:
        """Return a positive whole number, or None where the key is null or absent."""
        return self.count(key) if key in self else None

    def flag(self, key: str, default: bool | None = REQUIRED) -> bool:
        """Return true or false; without a default the key must be there."""
        return super().flag(key, default)

    def items(self, key: str) -> list[Any]:
        """Return a list that must be there."""
        self.need(key)
        return super().items(key)

    def layer_ids(self, key: str, layers: int) -> frozenset[int]:
        """Return the layer ids listed under ``key`` (none where it is null or absent)."""
        if key not in self:
            return frozenset()
        ids = self.items(key)
        for item in ids:
            if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < layers:
                self.must_be(key, f"a list of layer ids from 0 to {layers - 1}, and {shown(item)} is none")
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

    def layers(self, key: str = "num_hidden_layers") -> int:
        """Return the number of layers."""
        return self.count(key)

    def divides(self, part: int, whole: int, what: str) -> int:
        """Return ``whole // part``; ``what`` says which two do not fit where there is a rest."""
        if whole % part:
            raise InputError(f"{self.where}: {what} ({whole:,} is not a multiple of {part:,}).")
        return whole // part
