"""Nothing that a folder holds makes a command write elsewhere, or run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rackplan
from helpers import PLAN, Run

ROOT = Path(rackplan.__file__).parent.parent


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that somebody else filled, beside files of the user."""
    home, here = tmp_path / "home", tmp_path / "repository"
    for folder in (home / ".config", here / "results"):
        folder.mkdir(parents=True)
    for name in (".profile", ".config/victim.txt"):
        (home / name).write_text("mine")
    (here / "link").symlink_to("../home")
    (here / "results/plan.json").write_text('{"schema_version": 1}')
    (here / "results/link").symlink_to("../../home")
    monkeypatch.chdir(here)
    return here


def state(folder: Path) -> dict[str, bytes]:
    return {
        str(path): str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("catalog", "hgx-h100"), 0),
        (("score", "results"), 2),
        (("draw", "hgx-h100", "-o", "link/a.svg"), 2),
        ((*PLAN, "-o", "link"), 2),
        ((*PLAN, "-o", "link/.config"), 2),
        ((*PLAN, "-o", "results/link/new/deep"), 2),
        (("traffic", "hgx-h100", "-o", "link/.config"), 2),
    ],
)
def test_planted_folders_and_links(run: Run, repository: Path, words: tuple[str, ...], code: int) -> None:
    before = state(repository.parent)
    result = run(*words)
    assert result.code == code, result.err
    if "link" in " ".join(words):
        assert "is a symbolic link, which is not followed" in result.error_line
    assert state(repository.parent) == before


@pytest.mark.parametrize("name", ["report.html", "plan.json", "moves.json"])
def test_a_link_under_the_name_of_a_result(run: Run, repository: Path, name: str) -> None:
    (repository / "results" / name).unlink(missing_ok=True)
    (repository / "results" / name).symlink_to("../../home/.profile")
    before = state(repository.parent)
    result = run(*PLAN, "-o", "results")
    assert (result.code, f"results/{name} is a symbolic link" in result.error_line) == (2, True)
    assert state(repository.parent) == before


@pytest.mark.parametrize("name", ["results", "results/part-00000.parquet", "study.json"])
def test_a_link_in_the_folder_of_a_study(run: Run, repository: Path, name: str) -> None:
    pytest.importorskip("pyarrow", reason="the extra `study` is not installed")
    study = repository / "study.yaml"
    study.write_text(STUDY)
    out = repository / "out"
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    (out / name).symlink_to(repository.parent / "home" / ("" if name == "results" else ".profile"))
    before = state(repository.parent / "home")
    result = run("study", str(study), "-o", "out")
    assert result.code == 2
    assert state(repository.parent / "home") == before


STUDY = "kind: score\nfixed: {model: mixtral-8x7b, cluster: hgx-h100}\ngrid: {batch: [1]}\n"
SCRIPT = "import sys; sys.argv[0] = 'rackplan'; from rackplan.__main__ import main; main()"
"""What the command `rackplan` runs; a script looks for modules in its own folder, not in the working one."""


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (("-P", "-c", SCRIPT), ("schema", "plan")),
        pytest.param(("-m", "rackplan"), ("study", "study.yaml", "-o", "out"), marks=pytest.mark.wide),
    ],
)
def test_modules_of_the_working_folder_are_not_imported(
    tmp_path: Path, how: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """Neither by the command nor by processes that it starts; `python -m` itself imports some before it begins."""
    names = ["json", "yaml", "numpy", "typer", "multiprocessing", "joblib", "cost", "pickle"]
    for name in (*names, *(["re", "contextlib", "topology", "runpy", "signal"] if how[0] == "-P" else [])):
        (tmp_path / f"{name}.py").write_text("open('ran', 'a').write(__name__ + ' ')\n")
    (tmp_path / "study.yaml").write_text(STUDY)
    command = [sys.executable, *how, *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert ended.returncode in (0, 1), ended.stderr
