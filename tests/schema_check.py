"""Outputs held against their schemas, keys that a schema lacks forbidden."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rackplan.report.schema import SHAPED, data_type, json_schema

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def unlike(schema: dict[str, Any], value: Any, where: str = "") -> Iterator[str]:
    """Yield what of ``value`` is not as a schema of a document has it; keys that it lacks count."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    fits = [kind for kind in kinds if isinstance(value, _TYPES[kind])]
    if kinds and (not fits or (isinstance(value, bool) and "boolean" not in kinds)):
        yield f"{where}: {value!r} is not {kinds}"
    if isinstance(value, dict) and "properties" in schema:
        yield from (f"{where}.{key}: not declared" for key in value if key not in schema["properties"])
        yield from (f"{where}.{key}: missing" for key in schema.get("required", ()) if key not in value)
        for key, inner in schema["properties"].items():
            if key in value:
                yield from unlike(inner, value[key], f"{where}.{key}")
    elif isinstance(value, list) and "items" in schema:
        for place, one in enumerate(value):
            yield from unlike(schema["items"], one, f"{where}[{place}]")


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(data_type(name))


def require_schema(name: str, data: dict[str, Any], *, file: bool = False) -> None:
    """Fail where ``data``, what the command ``name`` prints or a file of that name holds, is not of its schema.

    ``file``: the version is a key like others.
    """
    if name in SHAPED:
        wrong = list(unlike(json_schema(name), data))
        assert not wrong, f"{name}: {wrong[:5]}"
        return
    given = data if file else {key: value for key, value in data.items() if key != "schema_version"}
    try:
        read = _adapter(name).validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        message = (
            f"{name}: not of its schema: {first['loc']}: {first['msg']}, found {str(first['input'])[:80]}"
        )
        raise AssertionError(message) from None
    back = _adapter(name).dump_python(read, mode="json", by_alias=True, exclude_unset=True)
    lost = list(_unlike(given, back))
    assert not [one for one in lost if one != "notes"], f"{name}: not in its schema: {lost[:5]}"


def _unlike(given: Any, read: Any, where: str = "") -> Iterator[str]:
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():  # what else was read are defaults
            place = f"{where}.{key}" if where else key
            if key in read:
                yield from _unlike(value, read[key], place)
            else:
                yield place
    elif isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        for one, other in zip(given, read, strict=True):
            yield from _unlike(one, other, f"{where}[]")
    elif given != read:
        yield where
