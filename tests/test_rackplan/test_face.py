"""The parts of the face: public names, output folders, digests, tables, progress."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import fields
from inspect import signature
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
from topology.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


STATE = State(2, "price of excess 40", 58, 31, 0.97123, 1234, 0.98809)


@pytest.mark.parametrize("name", rackplan.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(rackplan, name) is not None


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
