"""The parts of the face: public names, output folders, digests, tables, progress."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import fields
from inspect import signature
from threading import Event
from typing import TYPE_CHECKING

import pytest

import rackplan
from cost.resolve import resolve_model
from placement.migrate.migration import State
from rackplan.cli import COMMANDS
from rackplan.digests import digests
from rackplan.options import DEFAULT_LOADS, Pricing, Serving, flat, model_loads
from rackplan.output import json_text
from rackplan.progress import progress
from rackplan.render.text import text_lines, wrapped
from rackplan.views.blocks import Heading, Table
from topology.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


STATE = State(2, "price of excess 40", 58, 31, 0.97123, 1234, 0.98809)


@pytest.mark.parametrize("name", rackplan.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(rackplan, name) is not None


def test_public_names_are_listed_once_and_sorted() -> None:
    assert list(rackplan.__all__) == sorted(set(rackplan.__all__))


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rackplan.nothing  # noqa: B018


def test_digests_are_of_files_alone(tmp_path: Path) -> None:
    path = tmp_path / "loads.npy"
    path.write_bytes(b"abc")
    assert digests(["uniform", str(path), str(tmp_path)]) == {str(path): hashlib.sha256(b"abc").hexdigest()}


def test_default_loads_are_synthetic_and_seeded() -> None:
    model = resolve_model("mixtral-8x7b")
    first, again, other = (model_loads(model, [], seed) for seed in (0, 0, 1))
    assert first is not None
    assert again is not None
    assert other is not None
    assert first.synthetic
    assert first.names[0].startswith(DEFAULT_LOADS)
    assert (first.tokens == again.tokens).all()
    assert (first.tokens != other.tokens).any()


def test_dense_models_have_no_loads() -> None:
    dense = resolve_model("llama-3.1-8b")
    assert model_loads(dense, [], 0) is None
    with pytest.raises(InputError, match="--loads uniform"):
        model_loads(dense, ["uniform"], 0)


def test_a_group_of_options_stands_where_its_parameter_stood() -> None:
    given = {}

    def command(*, model: str, serving: Serving, seed: int = 0) -> None:
        given.update(model=model, serving=serving, seed=seed)

    options = list(signature(flat(command)).parameters.values())
    assert [one.name for one in options] == ["model", "phase", "context", "batch", "seed"]
    assert [one.default for one in options[1:]] == ["decode", 4096, 0, 0]
    flat(command)(model="m", phase="prefill", context=5, batch=2, seed=7)
    assert given == {"model": "m", "serving": Serving(phase="prefill", context=5, batch=2), "seed": 7}


def test_commands_that_price_a_workload_have_the_same_options() -> None:
    pricing = [field.name for field in fields(Pricing)]
    for name in ("plan", "sweep", "compare", "import-plan"):
        names = list(signature(flat(COMMANDS[name])).parameters)
        first = names.index(pricing[0])
        assert names[first : first + len(pricing)] == pricing


def test_json_is_strict() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"a": float("nan")})


def test_tables_align() -> None:
    assert Table(("name", "ms"), [("a", "10.25"), ("long name", "1")]).lines == [
        "  name          ms",
        "  a          10.25",
        "  long name      1",
    ]


def test_paragraphs_are_at_most_100_wide() -> None:
    lines = wrapped("Label", "word " * 60 + "x" * 200)
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("Label         word")
    assert all(line.startswith(" " * 14) for line in lines[1:])


def test_flags_and_paths_stay_whole() -> None:
    lines = wrapped("Label", "ask for --max-moves or see out/a-b-c.json", 32)
    assert [line.strip() for line in lines[1:]] == ["--max-moves or see", "out/a-b-c.json"]


def test_long_labels_keep_a_space_and_the_width() -> None:
    lines = wrapped("gb200-nvl72@16384", "word " * 60)
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("gb200-nvl72@16384 word")


def test_titles_are_at_most_100_wide() -> None:
    *lines, rule = text_lines([Heading("a title of many words " * 9)])
    assert len(lines) == 2
    assert max(map(len, lines)) == len(rule) <= 100


def test_progress_is_silent_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as reporter:
        reporter.stage("working")
        reporter.layers(1, 2, 1.5, 1.2, 3.0)
        reporter.replan(STATE, 7.2)
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal_goes_to_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress() as reporter:
        reporter.stage("working")
        reporter.layers(1, 2, 1.5, 1.2, 3.0)
    assert capsys.readouterr().out == ""


def test_a_silent_command_says_that_it_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rackplan import progress as module

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(module, "SILENT_S", 0.01)
    said = Event()
    monkeypatch.setattr(module._Line, "say", lambda *_: said.set())
    with module.working("draw"):
        assert said.wait(5)
    assert capsys.readouterr().out == ""


def test_progress_of_a_re_plan_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.progress import Progress

    said: list[str] = []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(Progress, "update", lambda *_, description: said.append(description))
    with progress() as reporter:
        reporter.replan(STATE, 7.2)
    text = said[-1]
    for words in (
        "pass 2",
        "price of excess 40",
        "31 of 58 layers",
        "0.9712",
        "1,234 moves",
        "0.9881",
        "7 s",
    ):
        assert words in text
    assert capsys.readouterr().out == ""
