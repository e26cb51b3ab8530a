"""The schemas of what commands print: real outputs in many shapes, none with a key that its schema lacks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from schema_check import require_schema

from rackplan.cli import COMMANDS as TYPED
from rackplan.help import EXAMPLES
from rackplan.schemas.make import COMMANDS, FILES, NAMES, json_schema, unit_of

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
    assert set(COMMANDS) == set(TYPED)
    assert set(COMMANDS) <= set(EXAMPLES)


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_of_the_dialect_and_says_what_each_field_is(name: str) -> None:
    schema = json_schema(name)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:rackplan:{name}:1"
    assert schema["version"] == schema["properties"]["schema_version"]["const"] == 1
    assert schema["required"][0] == "schema_version"
    assert schema["description"]
    for found in _objects(schema):
        assert found["description"]
        for key, field in found["properties"].items():
            assert field.get("description"), (found["description"], key)
            if unit := unit_of(key):
                assert field["x-unit"] == unit
    references = set(_references(schema))
    assert references == {f"#/$defs/{one}" for one in schema.get("$defs", {})}


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"]
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("hbm_bytes_per_s", "byte/s"),
        ("tok_s_per_gpu_used", "token/s per GPU"),
        ("bound_s", "s"),
        ("usd_per_million_tokens_full", "USD per million tokens"),
        ("tpot_default", ""),
        ("power_kind", ""),
        ("gpus", ""),
    ],
)
def test_units_follow_from_names(name: str, unit: str) -> None:
    assert unit_of(name) == unit


def test_the_command(run: Run) -> None:
    listed = run("schema", "--json")
    assert [row["name"] for row in listed.data["rows"]] == list(NAMES)
    assert "plan.json" in run("schema").out
    assert json.loads(run("schema", "size").out) == json_schema("size")
    assert "did you mean plan" in run("schema", "plam").error_line


@pytest.mark.parametrize(
    ("path", "key"), [((), "more"), (("totals",), "more"), (("terms_s",), None), (("step_s",), "words")]
)
def test_a_key_that_a_schema_lacks_is_found(
    run: Run, prepared: Run, path: tuple[str, ...], key: str | None
) -> None:
    prepared("plan", "--model", "olmoe-1b-7b", "--cluster", "hgx-h100", "--time-limit", 0, "-o", "out")
    data = run("score", "out", "--json").data
    require_schema("score", data)
    inner = data
    for one in path[: -1 if key == "words" else None]:
        inner = inner[one]
    if key is None:  # parts of a step have any name
        inner["of a new kind"] = 0.0
        require_schema("score", data)
        return
    if key == "words":
        inner[path[-1]] = "1 s"
    else:
        inner[key] = 1
    with pytest.raises(AssertionError, match="schema"):
        require_schema("score", data)


MOE, DENSE = ("--model", "olmoe-1b-7b"), ("--model", "llama-3.1-8b")
ONE, TWO = ("--cluster", "hgx-h100"), ("--cluster", "hgx-h100@16")
LENGTHS = ("--isl", 2000, "--osl", 500)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("sweep", *MOE, *TWO, *LENGTHS, "--afd"), 0),
        (("sweep", *DENSE, *ONE, "--phase", "prefill"), 0),
        (("sweep", *DENSE, *ONE, *LENGTHS, "--prefix-hit", 0.5, "--kv-offload", "flash"), 0),
        (("sweep", *MOE, *ONE, "--tok-s-user", "50,100000", "--sparse-attention", "sqrt"), 0),
        (("compare", "hgx-h100", "lecture-8", *MOE, "--tok-s-user", "20,5000"), 0),
        (("compare", "hgx-h100", "hgx-h200", *DENSE, "--story"), 0),
        (("size", *DENSE, *ONE, "--tok-s", "1M", *LENGTHS), 0),
        (("size", *DENSE, "--cluster", "lecture-8", "--tok-s", "1M"), 0),
        (("traffic", "hgx-h100@16", "--pattern", "incast", "--no-fair"), 0),
        (("catalog",), 0),
        (("catalog", "gb200-nvl72@144"), 0),
        (("catalog", "rubin-ultra-nvl144"), 0),
        (("catalog", "Qwen3-235B-A22B"), 0),
        (("catalog", "models"), 0),
    ],
)
def test_outputs_have_their_schema(run: Run, words: tuple[str, ...], code: int) -> None:
    result = run(*words, "--json")
    assert result.code == code
    assert result.data


@pytest.mark.parametrize(
    "words",
    [
        (*MOE, *TWO, "--phase", "prefill"),
        (*DENSE, *ONE, "--tpot-ms", "none"),
        (*MOE, *TWO, "--spread", "node", "--loads", "lognormal:1", "--loads", "zipf:1", "--redundant", "auto"),
    ],
)
def test_plans_and_what_is_said_of_them(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    assert run("plan", *words, "--time-limit", 0, "-o", "a", "--json").data
    require_schema("plan.json", json.loads((tmp_path / "a/plan.json").read_text()), file=True)
    for command in ("score", "explain", "what-if"):
        assert run(command, "a", "--json").data
    assert run("diff", "a", "a", "--json").data["same"]
    if MOE[1] in words:
        assert run("replan", "a", "-o", "b", "--loads", "zipf:0.4", "--lost", "d0.n0.g1", "--json").data
        require_schema("moves.json", json.loads((tmp_path / "b/moves.json").read_text()), file=True)


def test_files(run: Run, tmp_path: Path) -> None:
    assert run("sweep", *DENSE, *ONE, "-o", "sweep.json").code == 0
    assert run("compare", "hgx-h100", "hgx-h200", *DENSE, "-o", "out").code == 0
    assert run("fleet", *DENSE, *ONE, *LENGTHS, "--time-limit", 1, "-o", "fleet").code == 0
    for name in ("sweep.json", "out/compare.json", "fleet/fleet.json"):
        require_schema(Path(name).name, json.loads((tmp_path / name).read_text()))
    assert set(FILES) >= {"sweep.json", "compare.json", "fleet.json"}
