"""Specifications with validation: types, and one sentence per pydantic error.

A class marked :func:`spec` is a frozen pydantic dataclass: :func:`validated` makes one of plain data, its constructor
of values, and either refuses what cannot be with an ``InputError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields
from functools import cache
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

from topology.base.errors import InputError
from topology.base.figures import UNPUBLISHED, Evidence, Figure
from topology.base.reading import nearest, shown
from topology.base.shown import Shown
from topology.base.units import parse_quantity
from topology.base.values import (
    require_flag,
    require_name,
    require_number,
    require_text,
    require_whole,
    wrong,
)

_T = TypeVar("_T")
_Class = TypeVar("_Class", bound=type)
CONFIG = ConfigDict(extra="forbid")
_MAX_KEY_CHARACTERS = 60
"""Of an unknown key in a message."""
_UNPUBLISHED_TEXT = "not published"
Origin = Mapping[str, str] | str | None
"""Where the figures of plain data are from: texts of a catalog file's sources by key, the place of a user's file that
vouches for all, or None where each names its source itself, as in a plan file."""


def problem(text: str) -> PydanticCustomError:
    """Return the error that a validator raises of what its class cannot be; the place goes before it."""
    return PydanticCustomError("problem", "{text}", {"text": text.removeprefix(": ")})


def checked(read: Callable[..., Any], *limits: float | None) -> BeforeValidator:
    """Return the check of a value by a function of :mod:`topology.base.values`, to annotate its type with."""

    def check(value: Any) -> Any:
        try:
            return read(value, "", *limits)
        except InputError as error:
            raise problem(str(error)) from None

    return BeforeValidator(check)


def _two_ends(value: object, where: str) -> object:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise wrong(value, where, "the ids of its two ends, like [d0.n0.g1, d0.s3]")
    return value


Count = Annotated[int, checked(require_whole)]
CountOrZero = Annotated[int, checked(require_whole, 0)]
MaybeCount = Annotated[int | None, checked(require_whole)]
"""A count that may be left out, for None; null in a file is none."""
Positive = Annotated[float, checked(require_number)]
Text = Annotated[str, Field(strict=True)]
Name = Annotated[str, checked(require_name)]
Flag = Annotated[bool, checked(require_flag)]
Ends = Annotated[tuple[Text, Text], checked(_two_ends)]


def _evidence(label: object) -> Evidence:
    for kind in Evidence:
        if kind.label == label:
            return kind
    raise problem(
        f"{shown(label)} is not a kind of evidence; {nearest(str(label), [member.label for member in Evidence])}"
    )


Kind = Annotated[Evidence, BeforeValidator(_evidence)]
"""A kind of evidence, by its label."""


def source_text(name: str, sources: Mapping[str, str], where: str) -> str:
    """Return the text of one of a file's sources.

    Raises
    ------
    InputError
        If it has no such source.
    """
    if name not in sources:
        raise InputError(f"{where}: source: {shown(name)} is not among the file's sources.")
    return sources[name]


def figure_of(value: Any, unit: str, where: str, origin: Origin = None) -> Figure:
    """Return the figure that a file gives, in SI units of ``unit``.

    Parameters
    ----------
    value:
        A quantity with its unit, the user's own (``"25 GB/s"``); a mapping of quantity, kind of evidence, source
        and perhaps a note, as in the catalog; without ``origin``, the fields of :class:`Figure`.
    where:
        The place of the figure, for messages.
    origin:
        Where figures of the file are from.

    Raises
    ------
    InputError
        If it is neither, or of another unit.
    """
    if isinstance(value, Figure):
        return value
    if isinstance(value, Mapping) and not isinstance(origin, str):
        if origin is None:
            return validated(_WrittenFigure, value, where).figure(unit, where)
        return validated(_SourcedFigure, value, where).figure(unit, where, origin)
    if unit == "1":
        raise wrong(value, where, "a mapping of a value, its kind and its source")
    source = origin if isinstance(origin, str) else where or "user"
    return Figure(parse_quantity(value, unit, where), unit, Evidence.USER, source, str(value))


def written_figure(figure: Figure) -> dict[str, Any]:
    """Return a figure as :func:`figure_of` reads it."""
    known = {"value": figure.value if figure.published else None, "unit": figure.unit}
    return {**known, "kind": figure.kind.label, "source": figure.source, "text": figure.text}


def quantity(unit: str, *, several: bool = False) -> GetPydanticSchema:
    """Return what to annotate a :class:`Figure` of ``unit`` with; ``several``: a list of them is read as a tuple."""

    def read(value: Any, info: Info) -> Any:
        if several and isinstance(value, list) and value:
            return tuple(figure_of(item, unit, f"[{i}]", info.context) for i, item in enumerate(value))
        return figure_of(value, unit, "", info.context)

    return _schema(read, written_figure)


def figures_by_name(units: Mapping[str, str]) -> GetPydanticSchema:
    """Return what to annotate a mapping of figures by name with, ``units`` those that there can be."""

    def read(value: Any, info: Info) -> Mapping[str, Figure]:
        if not isinstance(value, Mapping):
            raise wrong(value, "", "a mapping of figures")
        for key in value:
            if key not in units:
                raise InputError(
                    f"unknown key `{str(key)[:_MAX_KEY_CHARACTERS]}`; {nearest(str(key), units)}"
                )
        names = value if info.context is None else [key for key in units if key in value]
        return {key: figure_of(value[key], units[key], key, info.context) for key in names}

    return _schema(read, lambda value: {key: written_figure(figure) for key, figure in value.items()})


def _schema(read: Callable[[Any, Info], Any], write: Callable[[Any], Any]) -> GetPydanticSchema:
    """Return the schema of a field that ``read`` makes."""

    def check(value: Any, info: Info) -> Any:
        try:
            return read(value, info)
        except InputError as error:
            raise problem(str(error)) from None

    return GetPydanticSchema(
        lambda _source, _handler: core_schema.with_info_plain_validator_function(
            check, serialization=core_schema.plain_serializer_function_ser_schema(write)
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
        return tuple(getattr(self, member.name) for member in fields(self))  # type: ignore[arg-type]

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
                tuple(sorted(value.items())) if isinstance(value, Mapping) else value
                for value in self._values()
            )
            known = self.__dict__["_hash"] = hash((type(self).__name__, *parts))
        return known

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_hash"}


def _known_keys(cls: Any, data: Any) -> Any:
    """Reject a mapping with keys that the class does not have, without those that it needs, or with odd texts."""
    if not isinstance(data, Mapping):
        return data
    data = cls.completed(data)
    names = {
        member.name: member.default is MISSING and member.default_factory is MISSING for member in fields(cls)
    }
    for key in data:
        if key not in names:
            raise problem(f"unknown key `{str(key)[:_MAX_KEY_CHARACTERS]}`; {nearest(str(key), names)}")
    for key, needed in names.items():
        if needed and data.get(key) is None:
            raise problem(f"needs the key `{key}`.")
    try:
        for key, value in data.items():
            for text in value if isinstance(value, list) else (value,):
                if isinstance(text, str) and (text or key != "text"):
                    require_text(text, str(key))
    except InputError as error:
        raise problem(str(error)) from None
    return data


def _checked(self: Any) -> Any:
    """Reject what the class cannot be."""
    try:
        self.check()
    except InputError as error:
        raise problem(str(error)) from None
    return self


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field, Field))
def spec(cls: _Class) -> _Class:
    """Make ``cls`` a frozen pydantic dataclass, a :class:`Spec`; its constructor raises ``InputError``."""
    return _pydantic_dataclass(cls, kw_only=False)


@dataclass_transform(
    frozen_default=True, eq_default=False, kw_only_default=True, field_specifiers=(field, Field)
)
def keyword_spec(cls: _Class) -> _Class:
    """Make ``cls`` what :func:`spec` makes it, with a constructor that takes keywords alone."""
    return _pydantic_dataclass(cls, kw_only=True)


def _pydantic_dataclass(cls: _Class, *, kw_only: bool) -> _Class:
    keys: Any = classmethod(_known_keys)
    setattr(cls, "_known_keys", model_validator(mode="before")(keys))  # noqa: B010
    setattr(cls, "_checked", model_validator(mode="after")(_checked))  # noqa: B010
    shows = issubclass(cls, Shown)
    checked_class: Any = dataclass(cls, frozen=True, eq=False, kw_only=kw_only, repr=not shows, config=CONFIG)
    init = checked_class.__init__

    def refusing(self: Any, *args: Any, **values: Any) -> None:
        try:
            init(self, *args, **values)
        except ValidationError as error:
            raise InputError(_sentence(error, cls.__name__, None)) from None

    checked_class.__init__ = refusing
    return checked_class  # type: ignore[no-any-return]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@overload
def validated(kind: type[_T], data: object, where: str, origin: Origin = None) -> _T: ...
@overload
def validated(kind: Any, data: object, where: str, origin: Origin = None) -> Any: ...
def validated(kind: Any, data: object, where: str, origin: Origin = None) -> Any:
    """Return a value of ``kind``, such as a class marked :func:`spec` or a union of some, from plain data.

    Parameters
    ----------
    where:
        What messages call its place.
    origin:
        Where its figures are from.

    Raises
    ------
    InputError
        If a key is missing or unknown, or a value cannot be: the first of them, its place and what it must be.
    """
    try:
        return _adapter(kind).validate_python(data, context=origin)
    except ValidationError as error:
        raise InputError(_sentence(error, where, data)) from None


def changed(value: _T, where: str, **changes: object) -> _T:
    """Return a specification with other fields; ``where`` is what messages call its place.

    Raises
    ------
    InputError
        If it cannot be.
    """
    values = {member.name: getattr(value, member.name) for member in fields(value)}  # type: ignore[arg-type]
    return validated(type(value), {**values, **changes}, where)


def union(kind: Any) -> GetPydanticSchema:
    """Return what to annotate a base class with whose values are of a union of its classes."""
    return GetPydanticSchema(lambda _source, handler: handler(kind))


def plain(value: Any, kind: Any = None) -> Any:
    """Return a value as plain JSON-able data, which :func:`validated` reads."""
    annotation: Any = type(value) if kind is None else kind
    return _adapter(annotation).dump_python(value, mode="json", exclude_none=True)


def _sentence(error: ValidationError, where: str, data: object) -> str:
    """Return what is wrong with the first value that is: its place, what it is, and what it must be."""
    detail = error.errors(include_url=False)[0]
    kind, context = detail["type"], detail.get("ctx", {})
    at = ": ".join([where, *_place(detail["loc"], data)])
    if kind == "problem":
        return f"{at}: {detail['msg']}"
    if kind in ("missing", "union_tag_not_found"):
        key = context["discriminator"][1:-1] if "discriminator" in context else detail["loc"][-1]
        return f"{at}: needs the key `{key}`."
    if kind in ("value_error", "unexpected_keyword_argument"):
        return f"{at}: {context.get('error', 'unknown key.')}"
    if kind == "union_tag_invalid":
        tags = context["expected_tags"].replace("'", "")
        return f"{at}: {context['discriminator'][1:-1]}: {shown(context['tag'])} is not one of {tags}."
    return f"{at}: {shown(detail['input'])} {_requirement(detail)}"


def _requirement(error: ErrorDetails) -> str:
    """Return what a value must be."""
    mapping = "must be a mapping of keys to values."
    kinds = {
        "tuple_type": "must be a list.",
        "list_type": "must be a list.",
        "string_type": "must be text.",
    }
    kinds["too_short"] = "must have at least one entry."
    kinds |= dict.fromkeys(("dataclass_type", "model_type", "model_attributes_type", "dict_type"), mapping)
    return kinds.get(error["type"], f"{error['msg'].replace('Input should', 'must')}.")


def _place(loc: tuple[int | str, ...], data: Any) -> list[str]:
    """Return the keys to what is wrong, less the tags that say which class it is."""
    place: list[str] = []
    for key in loc:
        if key == "[key]" or (isinstance(data, Mapping) and key not in data):
            continue
        if isinstance(key, int) and place:
            place[-1] += f"[{key}]"
        else:
            place.append(str(key))
        within = isinstance(data, list | tuple) and isinstance(key, int) and key < len(data)
        data = data[key] if within or isinstance(data, Mapping) else None
    return place


@keyword_spec
class _WrittenFigure(Spec):
    """A figure with its source, as :func:`written_figure` writes it; without a value it is not published."""

    value: Any = ""
    unit: Text
    kind: Kind
    source: Text
    text: str = ""

    def figure(self, unit: str, where: str) -> Figure:
        """Return it, of ``unit``."""
        if self.unit != unit:
            raise InputError(f"{where}: unit: {shown(self.unit)} is not one of {unit}.")
        known = UNPUBLISHED if self.value is None else require_number(self.value, f"{where}: value")
        return Figure(known, unit, self.kind, self.source, self.text)


@keyword_spec
class _SourcedFigure(Spec):
    """A figure as a catalog writes it: a quantity (a number where it has no unit) and one of the file's sources."""

    value: Any
    kind: Kind
    source: Text
    note: Text = ""

    def figure(self, unit: str, where: str, sources: Mapping[str, str]) -> Figure:
        """Return it, of ``unit``."""
        source = source_text(self.source, sources, where) + (f" ({self.note})" if self.note else "")
        at = f"{where}: value"
        if unit == "1":
            number = require_number(self.value, at)
            return Figure(number, unit, self.kind, source, f"{number:g}")
        text = require_text(self.value, at)
        number = UNPUBLISHED if text == _UNPUBLISHED_TEXT else parse_quantity(text, unit, at)
        return Figure(number, unit, self.kind, source, text)
