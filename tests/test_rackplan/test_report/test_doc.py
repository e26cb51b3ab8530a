"""Documents: what they refuse, and what each face makes of them."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cost.terms.registry import TERMS
from page_check import EVIL, require_safe
from rackplan.report import fields
from rackplan.report.charts import figure, leading
from rackplan.report.doc import Chart, Code, Doc, Late, Layer, Note, Picture, Record, Shape, Table
from rackplan.report.fields import FIELDS, FORMS, Field, unit_of
from rackplan.report.page import fragment, page
from rackplan.report.schema import SHAPES, schema_of, shape_of
from rackplan.report.text import text
from schema_check import unlike
from topology.base.errors import input_name, spelling

REPORT = Path(fields.__file__).parent
ROOT = Record.of("", "cluster gpus tok_s step_s recipe", tiles="gpus")
ROWS = Table.of("rows", "cluster tok_s step_s", "Clusters")
SHAPE = Shape("thing", "A thing.", (ROOT, ROWS), "text")
ROW = {"cluster": "a", "gpus": 8, "tok_s": 1234.5, "step_s": 0.02486, "recipe": "whose"}


def doc(*blocks: Any, details: Any = ()) -> Doc:
    return Doc(SHAPE, "Things", ["It is so.", ""], [ROOT(ROW), *blocks], details)


def test_json_is_flat_and_holds_against_its_schema() -> None:
    made = doc(ROWS([ROW, {**ROW, "step_s": None}]), Note("why", "step_s", "missing"), Code("text", "a: 1"))
    data = json.loads(json.dumps(made.data))
    assert data["schema_version"] == 2
    assert data["answer"] == ["It is so."]
    assert (data["gpus"], data["text"]) == (8, "a: 1")
    assert data["rows"][1] == {"cluster": "a", "tok_s": 1234.5, "step_s": None}
    assert data["notes"] == [{"kind": "missing", "about": "step_s", "text": "why"}]
    assert list(unlike(schema_of(SHAPE, "thing", "thing"), data)) == []
    assert list(unlike(schema_of(SHAPE, "thing", "thing"), {**data, "more": 1})) == [".more: not declared"]


def test_what_is_not_declared_is_refused() -> None:
    with pytest.raises(ValueError, match="thing: others is not declared"):
        doc(Table.of("others", "cluster")([]))
    with pytest.raises(ValueError, match="thing: file is not declared"):
        doc(Code("file", "x"))
    with pytest.raises(KeyError, match="rows: a row lacks 'step_s'"):
        ROWS([{"cluster": "a", "tok_s": 1.0}])
    with pytest.raises(KeyError, match="speed"):
        Table.of("rows", "speed")


def test_text() -> None:
    rows = ROWS({**ROW, "tok_s": float(n)} for n in range(20))
    made = doc(rows, Note("a"), Note("b"), Note("how", kind="method"), details=[Code("text", "x: 1")])
    assert text(made, details=False).splitlines() == [
        "Things",
        "======",
        "",
        "It is so.",
        "",
        "cluster  a",
        "GPUs     8",
        "tok/s    1,234",
        "step     24.86 ms",
        "",
        "Clusters",
        "  cluster  tok/s      step",
        *(f"  a        {n:>5}  24.86 ms" for n in range(12)),
        "  the first 12 of 20; --json has all",
        "",
        "Note          a",
        "              b",
        "",
        "More          --details",
    ]
    assert "how" in text(made)
    assert text(made).endswith("x: 1\n")


def test_a_frontier_is_thinned_evenly_and_plans_stand_side_by_side() -> None:
    rows = [{**ROW, "tok_s": float(n)} for n in range(20)]
    shown = text(doc(ROWS(rows, max_rows=3, even=True)))
    assert re.findall(r"a +(\d+) ", shown) == ["0", "10", "19"]
    pair = text(doc(ROWS([ROW, {**ROW, "cluster": "b", "step_s": 0.05}], across=True, change=True)))
    assert re.search(r"step +24.86 ms +50 ms +\+101.1%", pair)


def test_hostile_names_neither_steer_a_terminal_nor_a_browser() -> None:
    evil = f"{EVIL}\x1b[31m\n"
    made = Doc(
        SHAPE,
        evil,
        [f"{evil}."],
        [
            ROOT({**ROW, "cluster": evil}),
            ROWS([{**ROW, "cluster": evil}]),
            Note(evil),
            Chart(evil, [Layer("bar", ROWS([{**ROW, "cluster": evil}]), "cluster", "tok_s", "cluster")]),
            Code("text", evil),
        ],
    )
    assert "\x1b" not in text(made)
    assert "<script" not in str(require_safe(page(made)).charts)
    for markup in (page(made), fragment(made)):
        assert "<script>alert" not in markup
        assert "\x1b" not in markup


def test_inputs_are_called_as_each_interface_does() -> None:
    made = doc(Note(f"give {input_name('ttft_ms')}."))
    assert "give `ttft_ms`." in text(made)
    with spelling(lambda name: f"--{name}"):
        assert "give --ttft_ms." in text(made)
        assert made.data["notes"][0]["text"] == "give --ttft_ms."
        assert "give --ttft_ms." in page(made)


def test_a_page_has_sections_for_titled_blocks_and_makes_late_ones() -> None:
    chart = Chart("Speed", [Layer("line", ROWS([ROW, {**ROW, "tok_s": 9.0}]), "tok_s", "step_s", "cluster")])
    made = page(doc(chart, details=[Late(lambda: [ROWS([ROW], title="Later")])]))
    assert list(re.findall(r"<h2[^>]*>([^<]*)", made)) == ["Speed", "Later"]
    assert 'id="chart-speed"' in made
    assert "<code>a \\\nb</code>" in page(doc(Code("text", "a \\\nb", "Start with")))
    assert "Later" not in text(doc(details=[Late(lambda: [ROWS([ROW], title="Later")])]))


def test_a_page_is_safe_and_its_charts_have_names_of_their_own() -> None:
    chart = Chart("", [Layer("line", ROWS([ROW]), "tok_s", "step_s")], alt="Speed")
    found = require_safe(page(doc(chart, chart, Picture("step", "a step", "<?xml?><svg></svg>"))))
    assert list(found.charts) == ["chart-speed", "chart-speed-2"]
    assert "<?xml" not in page(doc(Picture("step", "a step", "<?xml?><svg></svg>")))


def test_charts_scale_their_axes_and_float_bars() -> None:
    rows = ROWS([ROW, {**ROW, "cluster": "b", "step_s": 0.03}])
    drawn = figure(Chart("", [Layer("bar", rows, "step_s", "cluster")]))
    assert drawn.layout.xaxis.title.text == "step, ms"
    assert list(drawn.data[0].x) == pytest.approx([24.86, 30])
    ends = [{"cluster": "a", "tok_s": 5.0, "step_s": 2.0}, {"cluster": "b", "tok_s": 7.0, "step_s": 3.0}]
    floating = figure(Chart("", [Layer("bar", ROWS(ends), "cluster", "tok_s", base="step_s")]))
    assert (list(floating.data[0].base), list(floating.data[0].y)) == ([2.0, 3.0], [3.0, 4.0])
    assert leading(doc()) is None


def test_every_field_says_what_it_is_and_ends_in_its_unit() -> None:
    for key, field in FIELDS.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", key)
        assert field.label
        assert field.meaning.endswith("."), key
        assert field.form in ("", *FORMS), key
        if field.is_number:
            assert field.form or unit_of(key)[2] != "text", key


def test_no_field_is_declared_twice_or_unused() -> None:
    declared = (REPORT / "fields.csv").read_text(encoding="utf-8").splitlines()
    assert len(declared) == len(FIELDS) + 1
    shapes = [shape_of(name) for name in SHAPES]
    used = {column.key for shape in shapes for table in shape.tables for column in table.fields}
    used |= {key for shape in shapes for key in shape.texts.split()}
    for path in [*REPORT.glob("*.py"), *REPORT.parent.glob("serve/*.py")]:
        used |= listed_keys(path.read_text(encoding="utf-8"))
    assert used == set(FIELDS)
    assert {f"{name}_s" for name in TERMS} <= set(FIELDS)


def listed_keys(source: str) -> set[str]:
    """The keys of lists of keys in ``source``: tables of pages alone are in no shape."""
    texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    lists = [text.split() for text in texts if isinstance(text, str) and " " in text]
    return {key for keys in lists if set(keys) <= set(FIELDS) for key in keys}


def test_figures_in_sentences() -> None:
    assert Field("gpus", "GPUs", "All.", "count").phrase(1) == "1 GPU"
    assert FIELDS["gpus"].phrase(80) == "80 GPUs"
    assert FIELDS["tok_s_per_gpu"].phrase(1702.4, "output") == "1,702 output tok/s/GPU"
    assert FIELDS["step_s"].phrase(0.02486) == "24.9 ms"
    assert FIELDS["usd_per_million_tokens"].phrase(0.2894) == "0.289 USD per million tokens"
    assert FIELDS["tok_s"].text(None) == "-"
    assert FIELDS["tok_s"].text(1.25e6) == "1.25 M"
