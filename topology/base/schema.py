"""Specifications check what they are made of: their types, and one sentence for what pydantic finds wrong.

A class marked :func:`spec` is a frozen pydantic dataclass: :func:`validated` makes one of plain data, its constructor
of values, and either refuses what cannot be with an ``InputError``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields
from functools import cache
from numbers import Integral
from typing import Annotated, Any, TypeVar, dataclass_transform, overload

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic import ValidationInfo as Info
from pydantic.dataclasses import dataclass
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema

from topology.base.errors import InputError, printable
from topology.base.figures import UNPUBLISHED, Evidence, Figure
from topology.base.reading import Fields, nearest, shown
from topology.base.shown import Shown
from topology.base.units import parse_quantity

_T = TypeVar("_T")
_Class = TypeVar("_Class", bound=type)
CONFIG = ConfigDict(extra="forbid")
_LONGEST = 60
_UNPUBLISHED_TEXT = "not published"


def _must(problem: str) -> PydanticCustomError:
    """Return the error of a value that must be something else; its place and the value go before it."""
    return PydanticCustomError("must", "must {problem}", {"problem": problem})


def problem(text: str) -> PydanticCustomError:
    """Return the error that a validator raises of what its class cannot be; the place goes before it."""
    return PydanticCustomError("problem", "{text}", {"text": text})


def _whole(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        whole = type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))
        if not whole or not least <= value <= 1_000_000:
            raise _must(f"be a whole number from {least} to 1000000.")
        return int(value)

    return read


def _number(least: float | None = None, most: float = math.inf) -> Callable[[Any], float]:
    limits = "greater than zero" if least is None else f"of {least:g} or more"
    if most < math.inf:
        limits = f"from {least or 0:g} to {most:g}"

    def read(value: Any) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = float(value) if abs(value) < 1e300 else math.inf
            above = number > 0 if least is None else number >= least
            if above and math.isfinite(number) and number <= most:
                return number
        raise _must(f"be a number {limits}.")

    return read


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _must("be true or false.")
    return value


def _two(problem: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise _must(problem)
        return value

    return read


Count = Annotated[int, BeforeValidator(_whole(1))]
CountOrZero = Annotated[int, BeforeValidator(_whole(0))]
Positive = Annotated[float, BeforeValidator(_number())]
Text = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Ends = Annotated[
    tuple[Text, Text], BeforeValidator(_two("be the ids of its two ends, like [d0.n0.g1, d0.s3]."))
]
Pair = Annotated[tuple[Positive, Positive], BeforeValidator(_two("be a list of 2 numbers."))]


def at_least(least: float, most: float = math.inf) -> BeforeValidator:
    """Return the check of a finite number within limits, to annotate ``float`` with."""
    return BeforeValidator(_number(least, most))


def figure_of(value: Any, unit: str, where: str, sources: Mapping[str, str] | None = None) -> Figure:
    """Return the figure that a file gives, in SI units of ``unit``.

    Parameters
    ----------
    value:
        A quantity with its unit, the user's own (``"25 GB/s"``); a mapping of quantity, kind of evidence, one of
        ``sources`` and perhaps a note, as in the catalog; without ``sources``, the fields of :class:`Figure`.

    Raises
    ------
    InputError
        If it is neither, or of another unit.
    """
    if isinstance(value, Figure):
        return value
    if not isinstance(value, Mapping) and unit == "1":
        raise InputError(f"{where}: {shown(value)} must be a mapping of a value, its kind and its source.")
    if not isinstance(value, Mapping):
        return Figure(parse_quantity(value, unit, where), unit, Evidence.USER, where, str(value))
    fields = Fields(value, where)
    if sources is None:
        fields.choice("unit", (unit,))
        known = fields.get("value", 0) is not None
        source, text = fields.text("source"), str(fields.get("text", ""))
        number = fields.number("value") if known else UNPUBLISHED
    else:
        source = fields.source(sources) + (f" ({fields.text('note')})" if "note" in fields else "")
        if unit == "1":
            number = fields.number("value")
            text = f"{number:g}"
        else:
            text = fields.text("value")
            known = text != _UNPUBLISHED_TEXT
            number = parse_quantity(text, unit, fields.at("value")) if known else UNPUBLISHED
    kind = fields.evidence()
    fields.done()
    return Figure(number, unit, kind, source, text)


def written_figure(figure: Figure) -> dict[str, Any]:
    """Return a figure as :func:`figure_of` reads it."""
    known = {"value": figure.value if figure.published else None, "unit": figure.unit}
    return {**known, "kind": figure.kind.label, "source": figure.source, "text": figure.text}


def quantity(unit: str) -> GetPydanticSchema:
    """Return what to annotate a :class:`Figure` of ``unit`` with: it is read by :func:`figure_of`."""

    def read(value: Any, info: Info) -> Figure:
        if isinstance(value, Figure):
            return value
        return figure_of(value, unit, str(info.field_name), _sources(info))

    return _schema(read, written_figure)


def figures_by_name(units: Mapping[str, str]) -> GetPydanticSchema:
    """Return what to annotate a mapping of figures by name with, ``units`` those that there can be."""

    def read(value: Any, info: Info) -> Mapping[str, Figure]:
        sources, where = _sources(info), str(info.field_name)
        if not isinstance(value, Mapping):
            raise InputError(f"{where}: {shown(value)} must be a mapping of figures.")
        for key in value:
            if key not in units:
                raise InputError(f"{where}: unknown key `{str(key)[:_LONGEST]}`; {nearest(str(key), units)}")
        names = value if sources is None else [key for key in units if key in value]
        return {key: figure_of(value[key], units[key], f"{where}: {key}", sources) for key in names}

    return _schema(read, lambda value: {key: written_figure(one) for key, one in value.items()})


def _sources(info: Info) -> Mapping[str, str] | None:
    sources: Mapping[str, str] | None = info.context
    return sources


def _schema(read: Callable[[Any, Info], Any], write: Callable[[Any], Any]) -> GetPydanticSchema:
    """Return the schema of a field that ``read`` makes; what it refuses begins with the name of the field."""

    def checked(value: Any, info: Info) -> Any:
        try:
            return read(value, info)
        except InputError as error:
            raise PydanticCustomError("field", "{text}", {"text": str(error)}) from None

    return GetPydanticSchema(
        lambda _source, _handler: core_schema.with_info_plain_validator_function(
            checked, serialization=core_schema.plain_serializer_function_ser_schema(write)
        )
    )


class Spec:
    """What :func:`spec` gives a class: equality and a hash by value, of which the hash is computed once."""

    @classmethod
    def completed(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return plain data of one with what follows from the rest of it."""
        return data

    def check(self) -> None:
        """Raise InputError where its fields do not go together; the message has no place."""

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, one.name) for one in fields(self))  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not type(self):
            return NotImplemented
        return hash(self) == hash(other) and self._values() == other._values()

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            parts = (
                tuple(sorted(one.items())) if isinstance(one, Mapping) else one for one in self._values()
            )
            known = self.__dict__["_hash"] = hash((type(self).__name__, *parts))
        return known

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_hash"}


def _known_keys(cls: Any, data: Any) -> Any:
    """Refuse a mapping with keys that the class does not have, without those that it needs, or with odd texts."""
    if not isinstance(data, Mapping):
        return data
    data = cls.completed(data)
    names = {one.name: one.default is MISSING and one.default_factory is MISSING for one in fields(cls)}
    for key in data:
        if key not in names:
            raise problem(f"unknown key `{str(key)[:_LONGEST]}`; {nearest(str(key), names)}")
    for key, needed in names.items():
        if needed and data.get(key) is None:
            raise problem(f"needs the key `{key}`.")
    for key, value in data.items():
        for text in value if isinstance(value, list) else (value,):
            if isinstance(text, str) and (printable(text) != text or not (text.strip() or key == "text")):
                raise problem(f"{key}: {shown(text)} must be a text, without control characters.")
    return data


def _checked(self: Any) -> Any:
    """Refuse what the class cannot be."""
    try:
        self.check()
    except InputError as error:
        raise problem(str(error)) from None
    return self


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field, Field))
def spec(cls: _Class) -> _Class:
    """Make ``cls`` a frozen pydantic dataclass, a :class:`Spec`; its constructor raises ``InputError``."""
    return _made(cls, kw_only=False)


@dataclass_transform(
    frozen_default=True, eq_default=False, kw_only_default=True, field_specifiers=(field, Field)
)
def keyword_spec(cls: _Class) -> _Class:
    """Make ``cls`` what :func:`spec` makes it, with a constructor that takes keywords alone."""
    return _made(cls, kw_only=True)


def _made(cls: _Class, *, kw_only: bool) -> _Class:
    keys: Any = classmethod(_known_keys)
    setattr(cls, "_known_keys", model_validator(mode="before")(keys))  # noqa: B010
    setattr(cls, "_checked", model_validator(mode="after")(_checked))  # noqa: B010
    shows = issubclass(cls, Shown)
    made: Any = dataclass(cls, frozen=True, eq=False, kw_only=kw_only, repr=not shows, config=CONFIG)
    init = made.__init__

    def refusing(self: Any, *args: Any, **values: Any) -> None:
        try:
            init(self, *args, **values)
        except ValidationError as error:
            raise InputError(_sentence(error, cls.__name__, None)) from None

    made.__init__ = refusing
    return made  # type: ignore[no-any-return]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@overload
def validated(kind: type[_T], data: object, where: str, sources: Mapping[str, str] | None = None) -> _T: ...
@overload
def validated(kind: Any, data: object, where: str, sources: Mapping[str, str] | None = None) -> Any: ...
def validated(kind: Any, data: object, where: str, sources: Mapping[str, str] | None = None) -> Any:
    """Return a value of ``kind``, such as a class marked :func:`spec` or a union of some, from plain data.

    Parameters
    ----------
    where:
        What messages call its place.
    sources:
        Texts of the sources that figures name, where they name any.

    Raises
    ------
    InputError
        If a key is missing or unknown, or a value cannot be: the first of them, its place and what it must be.
    """
    try:
        return _adapter(kind).validate_python(data, context=sources)
    except ValidationError as error:
        raise InputError(_sentence(error, where, data)) from None


def changed(value: _T, where: str, **changes: object) -> _T:
    """Return a specification with other fields; ``where`` is what messages call its place.

    Raises
    ------
    InputError
        If it cannot be.
    """
    own = {one.name: getattr(value, one.name) for one in fields(value)}  # type: ignore[arg-type]
    return validated(type(value), {**own, **changes}, where)


def union(kind: Any) -> GetPydanticSchema:
    """Return what to annotate a base class with whose values are of a union of its classes."""
    return GetPydanticSchema(lambda _source, handler: handler(kind))


def plain(value: Any, kind: Any = None) -> Any:
    """Return a value as plain JSON-able data, which :func:`validated` reads."""
    made: Any = type(value) if kind is None else kind
    return _adapter(made).dump_python(value, mode="json", exclude_none=True)


def _sentence(error: ValidationError, where: str, data: object) -> str:
    """Return what is wrong with the first value that is: its place, what it is, and what it must be."""
    first = error.errors(include_url=False)[0]
    own = first["type"] == "field"  # its message begins with the name of the field
    at = ": ".join([where, *_place(first["loc"][:-1] if own else first["loc"], data)])
    context: Any = first.get("ctx", {})
    if own or first["type"] == "problem":
        return f"{at}: {first['msg']}"
    if first["type"] in ("missing", "union_tag_not_found"):
        key = context["discriminator"][1:-1] if "discriminator" in context else first["loc"][-1]
        return f"{at}: needs the key `{key}`."
    if first["type"] in ("value_error", "unexpected_keyword_argument"):
        return f"{at}: {context.get('error', 'unknown key.')}"
    if first["type"] == "union_tag_invalid":
        tags = context["expected_tags"].replace("'", "")
        return f"{at}: {context['discriminator'][1:-1]}: {shown(context['tag'])} is not one of {tags}."
    return f"{at}: {shown(first['input'])} {_requirement(first)}"


def _requirement(error: ErrorDetails) -> str:
    """Return what a value must be."""
    kinds = {"must": error["msg"], "tuple_type": "must be a list.", "list_type": "must be a list."}
    kinds |= {"string_type": "must be a text.", "dataclass_type": "must be a mapping of keys to values."}
    return kinds.get(error["type"], f"{error['msg'].replace('Input should', 'must')}.")


def _place(loc: tuple[int | str, ...], data: Any) -> list[str]:
    """Return the keys to what is wrong, less the tags that say which class it is."""
    place: list[str] = []
    for key in loc:
        if isinstance(data, Mapping) and key not in data:
            continue
        if isinstance(key, int) and place:
            place[-1] += f"[{key}]"
        else:
            place.append(str(key))
        within = isinstance(data, list | tuple) and isinstance(key, int) and key < len(data)
        data = data[key] if within or isinstance(data, Mapping) else None
    return place
