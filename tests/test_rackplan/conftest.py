"""The command line in this process: arguments in, exit code and both streams out."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import Result


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Result]:
    """Run ``rackplan ARGS...`` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*args: object) -> Result:
        from rackplan.cli import main

        monkeypatch.setattr(sys, "argv", ["rackplan", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        name = "import-plan-check" if "--check" in args else next(map(str, args), "")
        return Result(code if isinstance(code, int) else 0, out, err, name)

    return call


@pytest.fixture
def few_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sizes join few GPUs and make no fleets, where what a size says is tested and not how well it shares."""
    monkeypatch.setattr("cost.serving.units.MAX_JOINED_GPUS", 16)
    monkeypatch.setattr("cost.serving.units.MAX_FLEET_GPUS", 0)


@pytest.fixture
def no_speed_of_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sizes not say at which speed fewer and more units would be enough: most of their time goes there."""
    from cost.serving.supply import Part, Supply

    shortest = Supply.shortest_tpot

    def called(supply: Supply, part: Part, units: int = 0) -> float | None:
        return None if units else shortest(supply, part)

    monkeypatch.setattr(Supply, "shortest_tpot", called)


@pytest.fixture
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a rate be tried with a few hundred requests."""
    monkeypatch.setattr("cost.queueing.load.MIN_REQUESTS", 300)
    monkeypatch.setattr("cost.queueing.load.MAX_REQUESTS", 600)


@pytest.fixture(scope="session")
def few_layers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """``few_layers(MODEL, COUNT)``: the config of a catalog model cut to its first layers, as a file."""
    from cost.resolve import resolve_model

    def call(name: str, count: int) -> Path:
        path = tmp_path_factory.getbasetemp() / f"{name}-of-{count}-layers" / "config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({**resolve_model(name).config, "num_hidden_layers": count}))
        return path

    return call


@pytest.fixture(scope="session")
def _folders() -> dict[tuple[str, ...], tuple[Path, Result]]:
    """What commands with these arguments wrote and said."""
    return {}


@pytest.fixture
def prepared(
    run: Callable[..., Result],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    _folders: dict[tuple[str, ...], tuple[Path, Result]],
) -> Callable[..., Result]:
    """``prepared(ARGS...)``: the folder ``-o`` of a command that succeeds, run once for all tests and copied.

    The arguments must name no file that a test wrote.
    """

    def call(*args: object) -> Result:
        key = tuple(map(str, args))
        folder = key[key.index("-o") + 1]
        if key not in _folders:
            result = run(*args)
            assert result.code == 0
            _folders[key] = tmp_path_factory.mktemp("prepared") / folder, result
            shutil.copytree(tmp_path / folder, _folders[key][0])
        else:
            shutil.copytree(_folders[key][0], tmp_path / folder, dirs_exist_ok=True)
        return _folders[key][1]

    return call
