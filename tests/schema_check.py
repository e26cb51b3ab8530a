"""Outputs held against their schemas, keys that a schema lacks forbidden."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rackplan.views.schemas import data_type


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(data_type(name))


def require_schema(name: str, data: dict[str, Any], *, file: bool = False) -> None:
    """Fail where ``data``, what the command ``name`` prints or a file of that name holds, is not of its schema.

    ``file``: the version is a key like others.
    """
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
    unlike = list(_unlike(given, back))
    assert not [one for one in unlike if one != "notes"], f"{name}: not in its schema: {unlike[:5]}"


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
