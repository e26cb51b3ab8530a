"""Documents: what they refuse, and what each face makes of them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from page_check import EVIL, require_safe
from rackplan.report.charts import figure, leading
from rackplan.report.doc import Chart, Code, Doc, Layer, Note, Picture, Record, Shape, Table
from rackplan.report.fields import FIELDS, FORMS, unit_of
from rackplan.report.page import fragment, page
from rackplan.report.schema import schema_of
from rackplan.report.text import text
from schema_check import unlike
from topology.base.errors import input_name, spelling

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


def test_charts_of_a_page_have_names_of_their_own() -> None:
    chart = Chart("", [Layer("line", ROWS([ROW]), "tok_s", "step_s")], alt="Speed")
    made = page(doc(chart, chart, Picture("step", "a step", "<?xml?><svg></svg>")))
    assert list(require_safe(made).charts) == ["chart-speed", "chart-speed-2"]
    assert "<?xml" not in made


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
