"""Data types of results: optional keys, figures with their origin, and conversion to JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import Field, GetCoreSchemaHandler, TypeAdapter
from pydantic.dataclasses import dataclass
from pydantic_core import CoreSchema, core_schema

from topology.base.figures import EvidenceLabel, Figure

T = TypeVar("T")


class _LeftOut:
    """The value of a key that a document lacks: one object, also after a copy."""

    def __repr__(self) -> str:
        return "LEFT_OUT"

    def __copy__(self) -> _LeftOut:
        return self

    def __deepcopy__(self, memo: object) -> _LeftOut:
        return self

    def __reduce__(self) -> str:
        return "LEFT_OUT"


LEFT_OUT: Any = _LeftOut()
"""Default of a key that a document may lack."""


def _is_left_out(value: object) -> bool:
    return value is LEFT_OUT


class _OrLeftOut:
    """Lets :data:`LEFT_OUT` through where Python makes a result; JSON has no such value."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: object, inner: core_schema.ValidatorFunctionWrapHandler) -> object:
            return value if value is LEFT_OUT else inner(value)

        plain = handler(kind)
        either = core_schema.no_info_wrap_validator_function(validate, plain)
        return core_schema.json_or_python_schema(json_schema=plain, python_schema=either)


Maybe = Annotated[T, _OrLeftOut(), Field(exclude_if=_is_left_out)]
"""A key that is absent where it is :data:`LEFT_OUT`; null is a value like others."""


@dataclass(frozen=True, kw_only=True)
class FigureData:
    """A figure of the catalog with its origin.

    Attributes
    ----------
    value, unit:
        The figure in SI, and its unit (``1``: a number); the value is null where it is not published.
    text:
        The figure as its source prints it.
    source, kind:
        Where it was read, and how it is known.
    """

    value: float | None
    unit: str
    text: str
    source: str
    kind: EvidenceLabel


@dataclass(frozen=True, kw_only=True)
class SetFigureData(FigureData):
    """A figure that the user set.

    Attributes
    ----------
    part, figure:
        The GPU, fabric or system, and which of its figures.
    """

    part: str
    figure: str


@dataclass(frozen=True, kw_only=True)
class SetData:
    """Figures set by the user.

    Attributes
    ----------
    set:
        The figures; absent where none was.
    """

    set: Maybe[list[SetFigureData]] = LEFT_OUT


def figure_data(figure: Figure, /, **more: str) -> Any:
    """Return the fields of a figure; its value is null where it is not published."""
    return {
        "value": figure.value if figure.published else None,
        "unit": figure.unit,
        "text": figure.text,
        "source": figure.source,
        "kind": figure.kind.label,
        **more,
    }


def taken(kind: type[T], source: object, /, **more: Any) -> T:
    """Return a dataclass filled by name from the attributes of ``source``, except the given fields."""
    names = (field.name for field in fields(kind) if field.name not in more)  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names if hasattr(source, name)}, **more)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def json_data(result: object) -> dict[str, Any]:
    """Return a result, or a mapping of results, as JSON-able data."""
    kind: Any = Any if isinstance(result, Mapping) else type(result)
    data: dict[str, Any] = _adapter(kind).dump_python(result, mode="json", by_alias=True)
    return data
