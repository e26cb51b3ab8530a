"""The schemas of what commands print: each holds what is printed, and says what every field is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import Run
from rackplan.cli import function_of
from rackplan.commands import COMMANDS as TYPED
from rackplan.report.fields import unit_of
from rackplan.report.schema import NAMES, REQUESTS, SHAPES, json_schema
from schema_check import require_schema


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """All mappings in a schema, itself too."""
    if isinstance(schema, dict):
        yield schema
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _parts(value)


def test_every_command_has_one() -> None:
    printed = {name for name in TYPED if any(own.name == "json" for own in function_of(name).shown)}
    assert set(SHAPES) - {"import-plan-check"} == printed
    assert set(REQUESTS) == {f"{name}-request" for name in TYPED}


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_of_the_dialect_and_says_what_each_field_is(name: str) -> None:
    schema = json_schema(name)
    version = schema["version"]
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:rackplan:{name}:{version}"
    assert version == (1 if name in REQUESTS or name == "moves.json" else 3 if name == "plan.json" else 2)
    assert schema["description"]
    assert {part["$ref"] for part in _parts(schema) if "$ref" in part} == {
        f"#/$defs/{part}" for part in schema.get("$defs", {})
    }
    for part in _parts(schema):
        for key, field in part.get("properties", {}).items():
            assert field.get("description"), (name, key)
            if name in REQUESTS and (unit := unit_of(key)[0]):
                assert field["x-unit"] == unit


def test_the_command(run: Run) -> None:
    listed = run("schema", "--json")
    assert [row["name"] for row in listed.data["schemas"]] == list(NAMES)
    assert json.loads(run("schema", "size").out) == json_schema("size")


@pytest.mark.wide
def test_files(run: Run, tmp_path: Path) -> None:
    dense, cluster = ("--model", "llama-3.1-8b"), ("--cluster", "hgx-h100")
    assert run("sweep", *dense, *cluster, "-o", "sweep.json").code == 0
    assert run("compare", "hgx-h100", "hgx-h200", *dense, "-o", "out").code == 0
    assert run("plan", *dense, *cluster, "--isl", 2000, "--osl", 500, "-o", "plan").code == 0
    for name in ("sweep.json", "out/compare.json", "plan/plan.json"):
        require_schema(Path(name).name, json.loads((tmp_path / name).read_text()))
