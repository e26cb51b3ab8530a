"""JSON Schemas (draft 2020-12) of documents: known from their shapes, before there is a result."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from rackplan.report.doc import SCHEMA_VERSION, Shape
from rackplan.report.fields import FIELDS

SHAPES: Mapping[str, str] = {
    "plan": "plan.PLAN",
    "replan": "changes.REPLAN",
    "score": "changes.SCORE",
    "import-plan": "plan.IMPORT_PLAN",
    "draw": "cluster.DRAW",
    "traffic": "cluster.TRAFFIC",
    "import": "cluster.IMPORT",
}
"""The shape of each command, as module and name in :mod:`rackplan.report`."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def shape_of(command: str) -> Shape:
    """Return what a command answers with."""
    module, _, name = SHAPES[command].partition(".")
    shape: Shape = getattr(import_module(f"rackplan.report.{module}"), name)
    return shape


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
    required = list(properties)
    for table in shape.tables:
        if table.key:
            properties[table.key] = table.schema
        else:
            properties |= table.schema["properties"]
    properties |= {key: FIELDS[key].schema for key in shape.texts.split()}
    note = {
        "kind": {
            "enum": ["note", "warning", "missing", "method", "next"],
            "description": "What it is.",
        },
        "about": {"type": "string", "description": "The key that it is about; of missing: why that is null."},
        "text": {"type": "string", "description": "The sentence."},
    }
    items = {"type": "object", "properties": note, "required": list(note)}
    properties["notes"] = {"type": "array", "items": items, "description": "What a reader should know."}
    return {
        "$schema": DIALECT,
        "$id": f"urn:rackplan:{name}:{SCHEMA_VERSION}",
        "version": SCHEMA_VERSION,
        "title": title,
        "description": shape.meaning,
        "type": "object",
        "properties": properties,
        "required": [*required, "notes"],
    }
