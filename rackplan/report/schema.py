"""JSON Schemas (draft 2020-12) of what commands are asked and answer, and of the files that they write.

A document's is known from its shape, before there is a result; requests and plan files are Pydantic's, described by
their options and docstrings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from rackplan import requests
from rackplan.report.doc import SCHEMA_VERSION, Doc, Note, Shape, Table
from rackplan.report.fields import FIELDS, unit_of
from rackplan.requests import Request, options_of
from topology.base.errors import InputError
from topology.base.reading import nearest

_COMMANDS = """plan replan score import-plan draw traffic import size compare what-if replay study catalog loads
    validate export import-plan-check schema sweep simulate roofline economics"""
SHAPES: Mapping[str, str] = {
    **{name: name for name in _COMMANDS.split()},
    **dict.fromkeys(("replan", "score"), "changes"),
    **dict.fromkeys(("draw", "traffic", "import"), "cluster"),
    **dict.fromkeys(("export", "import-plan-check"), "engines"),
    **dict.fromkeys(("roofline", "economics"), "principles"),
    "import-plan": "plan",
    "what-if": "levers",
}
"""The module of each command's shape in :mod:`rackplan.report`, where the shape has the command's name."""
REQUESTS: Mapping[str, type[Request]] = {
    re.sub(r"(?<=.)(?=[A-Z])", "-", name).lower(): kind
    for name, kind in vars(requests).items()
    if isinstance(kind, type) and issubclass(kind, Request) and kind.EXAMPLES
}
"""What each command is asked."""
_WRITTEN = [
    *("compare", "sweep", "size", "simulate", "replay", "score", "what-if", "traffic"),
    *("roofline", "economics"),
]
"""Commands that write the same JSON as they print."""
_OWN = {
    "plan.json": "placement.plans.schema.PlanFile",
    "moves.json": "placement.migrate.moves_file.MovesFile",
}
"""Files of their own form, with their types."""
FILES = (*_OWN, *(f"{name}.json" for name in _WRITTEN))
NAMES = (*SHAPES, *REQUESTS, *FILES)
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_KINDS = ("note", "warning", "missing", "method", "next")


LISTED = Table.of("schemas", "name schema_kind meaning", "Schemas", max_rows=None, shown="name meaning")
SCHEMA = Shape("schema", "The schemas that there are.", (LISTED,))


def schemas_doc() -> Doc:
    """Return the document of ``rackplan schema`` without a name."""
    listed = LISTED({"name": name, "schema_kind": kind_of(name), "meaning": about(name)} for name in NAMES)
    how = f"rackplan schema NAME prints one: JSON Schema of draft 2020-12, version {SCHEMA_VERSION}."
    return Doc(SCHEMA, "", [], [listed, Note(how)])


def kind_of(name: str) -> str:
    """Return ``command``, ``request`` or ``file``."""
    return "command" if name in SHAPES else "request" if name in REQUESTS else "file"


def about(name: str) -> str:
    """Return in a sentence what a command is asked or answers, or a file holds."""
    return str(json_schema(name)["description"])


def shape_of(name: str) -> Shape:
    """Return what a command answers with, or a file holds."""
    command = name.removesuffix(".json")
    module = import_module(f"rackplan.report.{SHAPES[command]}")
    shape: Shape = getattr(module, command.upper().replace("-", "_"))
    return shape


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of what a command is asked or answers, or of a file.

    Raises
    ------
    InputError
        If nothing of that name has a schema; the nearest are offered.
    """
    if name not in NAMES:
        raise InputError(f'unknown schema "{name}"; {nearest(name, NAMES)}')
    if name in REQUESTS or name in _OWN:
        return _of_type(name)
    return schema_of(shape_of(name), name, f"rackplan {name} --json" if name in SHAPES else name)


def schema_of(shape: Shape, name: str, title: str) -> dict[str, Any]:
    """Return the JSON Schema of a shape under the ``name`` of a command or a file; fields may be added later."""
    properties: dict[str, Any] = {
        "schema_version": {
            "const": SCHEMA_VERSION,
            "type": "integer",
            "description": "Version of this schema.",
        },
        "answer": {"type": "array", "items": {"type": "string"}, "description": "The answer in sentences."},
    }
    required = [*properties, "notes"]
    for table in shape.tables:
        properties |= {table.key: table.schema} if table.key else table.schema["properties"]
    properties |= {key: FIELDS[key].schema for key in shape.texts.split()}
    note = {
        "kind": {"enum": list(_KINDS), "description": "What it is."},
        "about": {"type": "string", "description": "The key that it is about; of missing: why that is null."},
        "text": {"type": "string", "description": "The sentence."},
    }
    items = {"type": "object", "properties": note, "required": list(note)}
    properties["notes"] = {"type": "array", "items": items, "description": "What a reader should know."}
    return _headed(name, SCHEMA_VERSION, title, shape.meaning) | {
        "properties": properties,
        "required": required,
    }


def _headed(name: str, version: int, title: str, description: str) -> dict[str, Any]:
    return {
        "$schema": _DIALECT,
        "$id": f"urn:rackplan:{name}:{version}",
        "version": version,
        "title": title,
        "description": description,
        "type": "object",
    }


def _of_type(name: str) -> dict[str, Any]:
    """Return the schema of a request, or of a file that has a type of its own."""
    kind: Any = REQUESTS.get(name)
    if kind is None:
        module, _, constant = _OWN[name].rpartition(".")
        kind = getattr(import_module(module), constant)
    schema = TypeAdapter(kind).json_schema(schema_generator=_Described)
    if "$ref" in schema:
        schema |= schema["$defs"][schema.pop("$ref").rpartition("/")[2]]
    version = schema["properties"].get("schema_version", {}).get("const", 1)
    body = {
        key: value for key, value in schema.items() if key not in ("title", "type", "description", "$defs")
    }
    definitions = {"$defs": schema["$defs"]} if schema.get("$defs") else {}
    return _headed(name, version, name, _summary(inspect.getdoc(kind))) | body | definitions


class _Described(GenerateJsonSchema):
    """Makes schemas whose fields say what they are, from the docstrings of their classes."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        """Leave out titles that only repeat the names."""
        return False

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a typed dictionary."""
        return _documented(super().typed_dict_schema(schema), schema.get("cls"))

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a pydantic model."""
        return _documented(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a dataclass."""
        result, of = super().dataclass_schema(schema), schema["cls"]
        return _request_schema(result, of) if issubclass(of, Request) else _documented(result, of)


def _request_schema(schema: JsonSchemaValue, of: type[Request]) -> JsonSchemaValue:
    """Add what options say of each field of a request, and units; leave out what is Python's alone."""
    properties = schema["properties"]
    for name, (option, _) in options_of(of).items():
        if option.python:
            del properties[name]
            continue
        properties[name] |= {"description": option.documented} | _unit(name)
    return schema


def _unit(name: str) -> dict[str, str]:
    unit = unit_of(name)[0]
    return {"x-unit": unit} if unit else {}


def _documented(schema: JsonSchemaValue, of: type | None) -> JsonSchemaValue:
    """Add what docstrings say of the whole and of each field, and units."""
    meanings = {} if of is None else _attributes(of)
    schema["description"] = _summary(inspect.getdoc(of))
    for name, properties in schema.get("properties", {}).items():
        unit = _unit(name)
        words = " ".join(filter(None, (meanings.get(name, ""), f"In {unit['x-unit']}." if unit else "")))
        properties.update(({"description": words} if words else {}) | unit)
    schema.pop("title", None)
    schema.pop("additionalProperties", None)
    return schema


def _attributes(of: type) -> dict[str, str]:
    """Return what the docstring of a class and of its bases says of each attribute."""
    meanings: dict[str, str] = {}
    for base in (*getattr(of, "__orig_bases__", ()), *of.__bases__):
        if isinstance(base, type) and base not in (dict, object):
            meanings |= _attributes(base)
    text = inspect.cleandoc(of.__doc__ or "")
    _, _, listed = text.partition("Attributes\n----------\n")
    for names, words in re.findall(r"^(\S.*):\n((?:[ ]+.*\n?|\n(?=[ ]))+)", listed, re.MULTILINE):
        meaning = _plain(" ".join(words.split()))
        several = [name.strip() for name in names.split(",")]
        meanings |= {name: meaning if len(several) == 1 else f"{names}: {meaning}" for name in several}
    return meanings


def _summary(text: str | None) -> str:
    """Return the first paragraph of a docstring as plain text on one line."""
    return _plain(text or "").partition("\n\n")[0].replace("\n", " ")


def _plain(text: str) -> str:
    return re.sub(r":\w+:`\.?([^`]+)`", r"\1", text).replace("``", "")
