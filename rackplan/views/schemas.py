"""JSON Schemas of what commands are asked and print with ``--json``, and of the files that they write.

Each result is a dataclass beside the blocks that show it. What a field means is under Attributes of its docstring, or
in its option; its unit follows from its name.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from rackplan import requests
from rackplan.report.schema import SHAPES, schema_of, shape_of
from rackplan.requests import Request, options_of
from rackplan.views.blocks import SCHEMA_VERSION
from rackplan.views.data import LEFT_OUT
from topology.base.errors import InputError
from topology.base.reading import nearest

COMMANDS: Mapping[str, str] = {
    "what-if": "levers.LeversResult",
    "sweep": "sweep.SweepResult",
    "size": "size.SizePrinted",
    "simulate": "simulate.SimulateResult",
    "compare": "compare.CompareResult",
    "fleet": "fleet.FleetPrinted",
    "replay": "replay.ReplayPrinted",
    "study": "study.StudyResultData",
    "export": "engines.ExportResult",
    "check": "engines.CheckResult",
    "loads": "loads.LoadsResult",
    "catalog": "catalog.CatalogResult",
    "validate": "validate.ValidateResult",
    "schema": "schema.SchemasResult",
}
"""Output type of each command, as module and name in :mod:`rackplan.views`."""
_WRITTEN = ("compare", "sweep", "size", "simulate", "replay", "score", "what-if", "traffic")
"""Commands that write the same JSON as they print."""
FILES: Mapping[str, str] = {
    "plan.json": "placement.plans.schema.PlanFile",
    "moves.json": "placement.migrate.moves_file.MovesFile",
    "fleet.json": "fleet.FleetFileData",
    "study.json": "study.StudyFile",
    **{f"{name}.json": COMMANDS[name] for name in _WRITTEN if name in COMMANDS},
}
"""Type of each file."""
SHAPED = (*SHAPES, *(f"{name}.json" for name in _WRITTEN if name in SHAPES))
"""Commands and files that are documents of :mod:`rackplan.report`."""
REQUESTS: Mapping[str, str] = {
    re.sub(r"(?<=.)(?=[A-Z])", "-", name).lower(): f"rackplan.requests.{name}"
    for name, kind in vars(requests).items()
    if isinstance(kind, type) and issubclass(kind, Request) and kind.EXAMPLES
}
"""Request type of each command."""
NAMES = (*COMMANDS, *SHAPED, *REQUESTS, *FILES)
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_UNITS = (
    ("usd_per_million_tokens", "USD per million tokens"),
    ("usd_per_hour", "USD/h"),
    ("usd_per_h", "USD/h"),
    ("usd_per_year", "USD a year"),
    ("tok_s_per_gpu", "token/s per GPU"),
    ("tok_s_per_user", "token/s per user"),
    ("tok_s_per_rack", "token/s per rack"),
    ("tok_s_per_replica", "token/s per replica"),
    ("tok_s_per_mw", "token/s per MW"),
    ("tok_s", "token/s"),
    ("requests_per_s", "request/s"),
    ("bytes_per_s_per_gpu", "byte/s"),
    ("bytes_per_s", "byte/s"),
    ("flop_per_s", "flop/s"),
    ("bytes_per_prompt", "byte"),
    ("bytes_per_step", "byte"),
    ("bytes_from", "byte"),
    ("bytes_moved", "byte"),
    ("bytes", "byte"),
    ("seconds", "s"),
    ("_cpu_s", "s"),
    ("_ms", "ms"),
    ("_kg", "kg"),
    ("power_w", "W"),
    ("_s", "s"),
)
_UNIONS = {
    "CatalogResult": "Output of ``rackplan catalog``: lists, or one entry with its figures.",
    "SizePrinted": "Output of ``rackplan size``: the fleet of one cluster, or those of several.",
}
"""Descriptions of union types."""
_VARIANTS = re.compile(r"_(used|full|mean|worst|default|basis|kind|source|limit)$")


def unit_of(name: str) -> str:
    """Return the unit that the name of a field says: ``byte/s`` of ``hbm_bytes_per_s``; empty where it says none."""
    bare = _VARIANTS.sub("", name)
    if bare != name and name.endswith(("_default", "_basis", "_kind", "_source")):
        return ""
    return next((unit for ending, unit in _UNITS if bare == ending.strip("_") or bare.endswith(ending)), "")


def _place(name: str) -> tuple[str, str]:
    """Return the module and the name of the type behind a schema."""
    where = COMMANDS.get(name) or REQUESTS.get(name) or FILES.get(name)
    if where is None:
        raise InputError(f'unknown schema "{name}"; {nearest(name, NAMES)}')
    module, _, kind = where.rpartition(".")
    return module if "." in module else f"rackplan.views.{module}", kind


def data_type(name: str) -> Any:
    """Return the type of what a command is asked or prints, or of a file.

    Raises
    ------
    InputError
        If nothing of that name has a schema; the nearest are offered.
    """
    module, kind = _place(name)
    return getattr(import_module(module), kind)


def kind_of(name: str) -> str:
    """Return ``command``, ``request`` or ``file``."""
    return "command" if name in COMMANDS or name in SHAPES else "request" if name in REQUESTS else "file"


def title_of(name: str) -> str:
    """Return what a schema is of."""
    return f"rackplan {name} --json" if kind_of(name) == "command" else name


def about(name: str) -> str:
    """Return in a sentence what a command is asked or prints, or a file holds; its module is read, not imported."""
    if name in SHAPED:
        return shape_of(name.removesuffix(".json")).meaning
    module, kind = _place(name)
    spec = find_spec(module)
    source = spec.loader.get_source(module) if spec else ""  # type: ignore[union-attr]
    found = (one for one in ast.parse(source).body if isinstance(one, ast.ClassDef) and one.name == kind)
    return _summary(next((ast.get_docstring(one) for one in found), _UNIONS.get(kind)))


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of what a command is asked or prints, or of a file.

    Fields of results may be added while the version stays, so that unknown ones are allowed.

    Raises
    ------
    InputError
        If nothing of that name has a schema.
    """
    if name in SHAPED:
        return schema_of(shape_of(name.removesuffix(".json")), name, title_of(name))
    made = TypeAdapter(data_type(name)).json_schema(schema_generator=_Described)
    if "$ref" in made:
        made |= made["$defs"][made.pop("$ref").rpartition("/")[2]]
    number = made.get("properties", {}).get("schema_version", {}).get("const", SCHEMA_VERSION)
    properties, required = made.pop("properties", {}), made.pop("required", [])
    if name not in REQUESTS:
        version = {"const": number, "type": "integer", "description": "Version of this schema."}
        notes = {
            "type": "array",
            "items": {"type": "string"},
            "description": "Notes on the options.",
        }
        properties = {"schema_version": version, **properties} | {"schema_version": version}
        properties.setdefault("notes", notes)
        required = ["schema_version", *(one for one in required if one != "schema_version")]
    definitions = made.pop("$defs", {})
    return {
        "$schema": _DIALECT,
        "$id": f"urn:rackplan:{name}:{number}",
        "version": number,
        "title": title_of(name),
        "description": about(name),
        "type": "object",
        **{key: value for key, value in made.items() if key not in ("title", "type", "description")},
        "properties": properties,
        "required": required,
        **({"$defs": definitions} if definitions else {}),
    }


class _Described(GenerateJsonSchema):
    """Makes schemas whose fields say what they are, from the docstrings of their classes."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        """Leave out titles that only repeat the names."""
        return False

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a field with a default; one that may be left out has none to show."""
        if schema.get("default") is LEFT_OUT:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a typed dictionary."""
        return _described(super().typed_dict_schema(schema), schema.get("cls"))

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a pydantic model."""
        return _described(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a dataclass."""
        made, of = super().dataclass_schema(schema), schema["cls"]
        return _asked(made, of) if issubclass(of, Request) else _described(made, of)


def _asked(made: JsonSchemaValue, of: type[Request]) -> JsonSchemaValue:
    """Add what options say of each field of a request, and units; leave out what is Python's alone."""
    properties = made["properties"]
    for name, (option, _) in options_of(of).items():
        if option.python:
            del properties[name]
            continue
        properties[name]["description"] = option.documented
        if unit := unit_of(name):
            properties[name]["x-unit"] = unit
    return made


def _described(made: JsonSchemaValue, of: type | None) -> JsonSchemaValue:
    """Add what docstrings say of the whole and of each field, and units."""
    said = {} if of is None else _attributes(of)
    made["description"] = _summary(inspect.getdoc(of))
    for name, field in made.get("properties", {}).items():
        unit = unit_of(name)
        text = said.get(name, "")
        words = " ".join(filter(None, (text, f"In {unit}." if unit else "")))
        if words:
            field["description"] = words
        if unit:
            field["x-unit"] = unit
    made.pop("title", None)
    made.pop("additionalProperties", None)
    return made


def _attributes(of: type) -> dict[str, str]:
    """Return what the docstring of a class and of its bases says of each attribute."""
    found: dict[str, str] = {}
    for base in (*getattr(of, "__orig_bases__", ()), *of.__bases__):
        if isinstance(base, type) and base not in (dict, object):
            found |= _attributes(base)
    text = inspect.cleandoc(of.__doc__ or "")
    _, _, listed = text.partition("Attributes\n----------\n")
    for names, words in re.findall(r"^(\S.*):\n((?:[ ]+.*\n?|\n(?=[ ]))+)", listed, re.MULTILINE):
        said = _plain(" ".join(words.split()))
        several = [name.strip() for name in names.split(",")]
        found |= {name: said if len(several) == 1 else f"{names}: {said}" for name in several}
    return found


def _summary(text: str | None) -> str:
    """Return the first paragraph of a docstring as plain text on one line."""
    return _plain(text or "").partition("\n\n")[0].replace("\n", " ")


def _plain(text: str) -> str:
    return re.sub(r":\w+:`\.?([^`]+)`", r"\1", text).replace("``", "")
