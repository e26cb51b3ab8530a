"""The schemas of what commands print: real outputs in many shapes, none with a key that its schema lacks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from rackplan.cli import COMMANDS as TYPED
from rackplan.cli import function_of
from rackplan.report.schema import SHAPES
from rackplan.requests import PlanRequest, options_of
from rackplan.views.schemas import COMMANDS, FILES, NAMES, REQUESTS, SHAPED, json_schema, unit_of
from schema_check import require_schema

Run = Callable[..., Any]


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for value in schema.values():
            yield from _objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _objects(value)


def test_every_command_has_one() -> None:
    assert {*COMMANDS, *SHAPES} == {
        name for name in TYPED if "json" in signature(function_of(name)).parameters
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_of_the_dialect_and_says_what_each_field_is(name: str) -> None:
    schema = json_schema(name)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    version = 2 if name == "plan.json" or name in SHAPED else 1
    assert schema["$id"] == f"urn:rackplan:{name}:{version}"
    assert schema["version"] == version
    assert schema["description"]
    if name in REQUESTS:
        assert schema["additionalProperties"] is False
    else:
        assert schema["properties"]["schema_version"]["const"] == version
        assert schema["required"][0] == "schema_version"
    for found in _objects(schema):
        assert found.get("description") or name in SHAPED  # rows are said by their table
        for key, field in found["properties"].items():
            assert field.get("description"), (name, key)
            if name not in SHAPED and (unit := unit_of(key)):
                assert field["x-unit"] == unit
    references = set(_references(schema))
    assert references == {f"#/$defs/{one}" for one in schema.get("$defs", {})}


def test_requests_have_the_schema_of_their_options() -> None:
    assert set(REQUESTS) == {f"{name}-request" for name in TYPED}
    schema = json_schema("plan-request")
    assert schema["required"] == ["model", "cluster"]
    assert set(schema["properties"]) == {
        name for name, (option, _) in options_of(PlanRequest).items() if not option.python
    }
    limit = schema["properties"]["tpot_ms"]
    assert {one.get("type") for one in limit["anyOf"]} == {"number", "string", "null"}
    assert limit["description"] == "Maximum time per output token in ms; none: no limit. [50]"
    assert limit["default"] is None


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"]
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def test_the_command(run: Run) -> None:
    listed = run("schema", "--json")
    assert [row["name"] for row in listed.data["rows"]] == list(NAMES)
    assert "plan.json" in run("schema").out
    assert json.loads(run("schema", "size").out) == json_schema("size")
    assert "did you mean plan" in run("schema", "plam").error_line


MOE, DENSE = ("--model", "olmoe-1b-7b"), ("--model", "llama-3.1-8b")
ONE, TWO = ("--cluster", "hgx-h100"), ("--cluster", "hgx-h100@16")
LENGTHS = ("--isl", 2000, "--osl", 500)


@pytest.mark.parametrize(
    "name", [None, "gb200-nvl72@144", "rubin-ultra-nvl144", "mi300x", "b200-sxm", "gpus"]
)
def test_entries_of_the_catalog(run: Run, name: str | None) -> None:
    assert run("catalog", *filter(None, [name]), "--json").data


@pytest.mark.wide
def test_files(run: Run, tmp_path: Path) -> None:
    assert run("sweep", *DENSE, *ONE, "-o", "sweep.json").code == 0
    assert run("compare", "hgx-h100", "hgx-h200", *DENSE, "-o", "out").code == 0
    assert run("fleet", *DENSE, *ONE, *LENGTHS, "--time-limit", 1, "-o", "fleet").code == 0
    for name in ("sweep.json", "out/compare.json", "fleet/fleet.json"):
        require_schema(Path(name).name, json.loads((tmp_path / name).read_text()))
    assert {*FILES, *SHAPED} >= {"sweep.json", "compare.json", "fleet.json"}
