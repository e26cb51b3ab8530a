"""The reference of JSON, made of the schemas that `rackplan schema` prints: a page for each, and the schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PAGE = "reference/schemas.md"
HEAD = """# JSON

What every command prints with `--json`, what it is asked (`plan-request`), and what the files hold, field by field.
`rackplan schema NAME` prints the same as a JSON Schema. Fields may be added while a version stands, never renamed or
given another unit ([more](../options.md#json)).

| | | |
|---|---|---|
"""
FIELDS_PAGE = "reference/fields.md"
FIELDS_HEAD = """# Figures

Every figure that commands print: the key is that of JSON, frames, CSV and Parquet, and means the same
in all of them.
"""
TABLE = ["| field | type | unit | what it is |", "|---|---|---|---|"]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put a page for each schema below theirs in the navigation."""
    below = [PAGE, {"Figures": FIELDS_PAGE}, *({name: _page(name)} for name in names())]
    for group in config.nav or ():
        for title, entries in group.items():
            if isinstance(entries, list) and PAGE in entries:
                group[title] = [{"JSON": below} if entry == PAGE else entry for entry in entries]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and the schemas themselves."""
    from mkdocs.structure.files import File

    rows = []
    for name, schema in schemas().items():
        text = json.dumps(schema, indent=1)
        files.append(File.generated(config, _page(name), content=schema_page(name, schema)))
        files.append(File.generated(config, f"reference/schemas/{_file(name)}", content=text))
        page, kept = _page(name).removeprefix("reference/"), f"schemas/{_file(name)}"
        rows.append(f"| [{name}]({page}) | {_cell(schema['description'])} | [schema]({kept}) |")
    files.append(File.generated(config, FIELDS_PAGE, content=fields_page()))
    files.append(File.generated(config, PAGE, content=HEAD + "\n".join(rows) + "\n"))
    return files


def names() -> tuple[str, ...]:
    """Return the names of all schemas: commands, requests, files."""
    from rackplan.report.schema import NAMES

    return NAMES


def schemas() -> Mapping[str, Mapping[str, Any]]:
    """Return every schema by its name."""
    from rackplan.report.schema import json_schema

    return {name: json_schema(name) for name in names()}


def schema_page(name: str, schema: Mapping[str, Any]) -> str:
    """Return the page of a schema: its fields, then those of the parts that it refers to."""
    lines = [f"# {name}", "", _cell(schema["description"]), ""]
    lines += [f"Version {schema['version']}; [as JSON Schema]({_file(name)}).", "", *_fields(schema), ""]
    for key, table in _tables(schema):
        lines += [f"## {key}", "", _cell(table[0]), "", *_fields(table[1]), ""]
    for part, of in sorted(schema.get("$defs", {}).items()):
        lines += [f"## {part}", "", _cell(of.get("description", "")), "", *_fields(of), ""]
    return "\n".join(lines)


def _tables(schema: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, Mapping[str, Any]]]]:
    """Yield the records and the arrays of records of a document: key, what it is, the object."""
    for key, field in schema.get("properties", {}).items():
        record = field.get("items", field)
        if "properties" in record:
            yield key, (str(field.get("description", "")), record)


def fields_page() -> str:
    """Return the page of all figures that results show: the registry."""
    from rackplan.report.fields import FIELDS

    lines = [FIELDS_HEAD, "| key | label | unit | what it is |", "|---|---|---|---|"]
    lines += [
        f"| `{field.key}` | {_cell(field.label)} | {_cell(field.unit)} | {_cell(field.meaning)} |"
        for field in sorted(FIELDS.values(), key=lambda field: field.key)
    ]
    return "\n".join(lines) + "\n"


def _page(name: str) -> str:
    return f"reference/schemas/{_file(name).removesuffix('.schema.json')}.md"


def _file(name: str) -> str:
    return f"{name.removesuffix('.json')}{'-file' if name.endswith('.json') else ''}.schema.json"


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the rows of an object; of anything else a line with its type."""
    if "properties" not in schema:
        yield f"{_type(schema)}."
        return
    yield from TABLE
    needed = set(schema.get("required", ()))
    for name, field in schema["properties"].items():
        kind = _type(field) + ("" if name in needed else ", may be absent")
        says = str(field.get("description", "")).removeprefix(f"{name}: ")
        yield f"| `{name}` | {kind} | {_cell(field.get('x-unit', ''))} | {_cell(says)} |"


def _type(of: Mapping[str, Any]) -> str:
    """Return the type of a field in words; a part is a link."""
    if "$ref" in of:
        name = of["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in of or "oneOf" in of:
        return " or ".join(dict.fromkeys(map(_type, of.get("anyOf", of.get("oneOf", ())))))
    if "enum" in of or "const" in of:
        return ", ".join(f"`{value}`" for value in of.get("enum", [of.get("const")]))
    if of.get("type") == "array":
        inside = of.get("items", of.get("prefixItems", [{}]))
        kinds = [inside] if isinstance(inside, Mapping) else inside
        return "list of " + ", ".join(map(_type, kinds))
    if of.get("type") == "object" and isinstance(of.get("additionalProperties"), Mapping):
        return f"object of {_type(of['additionalProperties'])}"
    kinds = of.get("type", "anything")
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def _cell(text: str) -> str:
    return re.sub(r"([|*_\[\]<>])", r"\\\1", " ".join(str(text).split()))
