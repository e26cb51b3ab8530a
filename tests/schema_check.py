"""Outputs held against their schemas, keys that a schema lacks forbidden."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rackplan.report.schema import json_schema

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def require_schema(name: str, data: dict[str, Any]) -> None:
    """Fail where ``data``, what the command ``name`` prints or a file of that name holds, is not of its schema."""
    wrong = list(unlike(json_schema(name), data))
    assert not wrong, f"{name}: {wrong[:5]}"


def unlike(schema: dict[str, Any], value: Any, where: str = "") -> Iterator[str]:
    """Yield what of ``value`` is not as a schema of a document has it; keys that it lacks count."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    fits = [kind for kind in kinds if isinstance(value, _TYPES[kind])]
    if kinds and (not fits or (isinstance(value, bool) and "boolean" not in kinds)):
        yield f"{where}: {value!r} is not {kinds}"
    if "const" in schema and value != schema["const"]:
        yield f"{where}: {value!r} is not {schema['const']}"
    if isinstance(value, dict) and "properties" in schema:
        yield from (f"{where}.{key}: not declared" for key in value if key not in schema["properties"])
        yield from (f"{where}.{key}: missing" for key in schema.get("required", ()) if key not in value)
        for key, inner in schema["properties"].items():
            if key in value:
                yield from unlike(inner, value[key], f"{where}.{key}")
    elif isinstance(value, list) and "items" in schema:
        for place, item in enumerate(value):
            yield from unlike(schema["items"], item, f"{where}[{place}]")
