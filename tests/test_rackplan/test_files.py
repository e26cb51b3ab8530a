"""Files of results: all or none, ours alone, no links followed, mixed or killed runs told, streams that fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import PLAN, ROOT, Result, Run, killed, plan_of
from placement.plans.reading import read_plan
from rackplan.commands.output import default_output, json_text

TO = PLAN[:-1]
"""A plan in a folder that is named."""


def test_a_plan_goes_to_a_folder_named_for_it_and_again(run: Run, tmp_path: Path) -> None:
    assert run(*TO[:-1]).code == 0
    folder = tmp_path / "out" / "mixtral-8x7b-on-hgx-h100"
    assert (folder / "plan.json").is_file()
    assert run(*TO[:-1], "--context", 1000).code == 0
    assert run("score", folder, "--json").data["tok_s_per_gpu"] > 0


def test_names_are_safe_in_folders_and_kept_in_json() -> None:
    assert str(default_output("a/../b c on x<y>@8")) == "out/a-..-b-c-on-x-y-@8"
    assert str(default_output("..")) == "out/plan"
    assert len(default_output("m" * 500).name) <= 120
    named = {"`cluster`": "lab `model` a", "files": ["`isl`.npy"]}  # spelled as options of messages are
    assert json.loads(json_text(named)) == named


def test_what_is_not_ours_is_left_alone(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "report.html").write_text("mine")
    assert "exists and was not written by rackplan" in run(*TO, folder).error_line
    assert (folder / "report.html").read_text() == "mine"
    assert [path.name for path in folder.iterdir()] == ["report.html"]


def test_what_is_said_is_written_as_the_ending_says(run: Run, tmp_path: Path) -> None:
    words = ("traffic", "hgx-h100", "--pattern", "ring")
    printed = run(*words, "--json").data
    result = run(*words, "-o", "t.json")
    assert (result.code, result.out.splitlines()[-1].split()) == (0, ["Written", "t.json"])
    assert json.loads((tmp_path / "t.json").read_text()) == {"schema_version": 2, **printed}
    assert run(*words, "-o", "out").code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["traffic.html", "traffic.json"]
    assert "rackplan traffic hgx-h100 --pattern ring -o out" in (tmp_path / "out/traffic.html").read_text()


def test_errors_do_not_steer_the_terminal(run: Run) -> None:
    assert r"no\x1b[2Jsuch" in run("catalog", "no\x1b[2Jsuch").error_line
    assert r"\x1b[2J" in run("plan", "--no\x1b[2Jsuch").error_line
    assert "\x1b" not in run("plan", "--no\n\x1b[2Jsuch").err


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line = f'"{sys.executable}" -m rackplan {command}'
    env = {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    return subprocess.run(
        ["/bin/bash", "-c", line], capture_output=True, text=True, cwd=folder, env=env, check=False
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_standard_output_is_one_line(tmp_path: Path) -> None:
    ended = shell("catalog > /dev/full", tmp_path)
    assert ended.returncode == 2
    assert ended.stderr == "rackplan: standard output: No space left on device.\n"


@pytest.mark.wide
@pytest.mark.parametrize("reader", [">&-", "| true; exit ${PIPESTATUS[0]}"])
def test_a_reader_that_is_not_there_is_no_error(tmp_path: Path, reader: str) -> None:
    ended = shell(f"{' '.join(TO)} out {reader}", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "out/plan.json").is_file()


REPLAN = ("replan", "plan", "--loads", "zipf:0.4", "--time-limit", "0", "-o", "again")
OTHER = plan_of("mixtral-8x7b", "hgx-h200", to="other")
Prepared = Callable[..., Result]


def test_the_files_of_a_run_belong_together(run: Run, prepared: Prepared) -> None:
    prepared(*PLAN)
    assert run(*REPLAN).err == ""
    for folder in ("plan", "again"):
        assert read_plan(folder).differences == ""
        assert run("score", folder).err == ""
    for name in ("report.html", "topology.svg", "moves.json"):
        data = Path("again", name).read_bytes()
        Path("again", name).write_bytes(Path("again/plan.json").read_bytes())  # without a digest
        assert read_plan("again").differences == ""
        if name != "moves.json":
            Path("again", name).write_bytes(Path("plan", name).read_bytes())
            assert f"again: {name}: not of this plan.json" in read_plan("again").differences
        Path("again", name).write_bytes(data)


@pytest.mark.parametrize(
    "words",
    [
        "score PLAN --json", "replan PLAN --loads zipf:0.4 --time-limit 0 -o new",
        "simulate PLAN --req-s 1", "what-if PLAN", "export PLAN --to sglang", "draw hgx-h100 --plan PLAN -o x.svg",
        "traffic PLAN", "replay PLAN --loads zipf:0.4 --loads zipf:0.6",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("few_requests")
def test_every_command_that_reads_a_plan_names_mixed_files(run: Run, prepared: Prepared, words: str) -> None:
    prepared(*PLAN)
    prepared(*OTHER)
    for name in ("report.html", "topology.svg"):
        Path("other", name).replace(Path("plan", name))
    result = run(*words.replace("PLAN", "plan/plan.json").split())
    assert result.code == 0, result.err
    notes = result.out if words.startswith("replay") else result.err  # a replay's are of its result
    assert "report.html, topology.svg: not of this plan.json" in " ".join(notes.split())
    if "--json" in words:
        assert "not of this plan.json" in json.dumps(result.data["notes"])


def test_the_page_says_so_when_it_starts(
    run: Run, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("starlette", reason="the extra `serve` is not installed")
    prepared(*PLAN)
    Path("plan/.rackplan-0123").mkdir()
    monkeypatch.setattr("rackplan.serve.server.serve", lambda *_: None)
    result = run("serve", "plan", "--port", "0")
    assert "note: plan: .rackplan-0123: of a run that was killed" in result.err
    assert "rackplan is running at" in result.out


def test_a_killed_run_is_visible_and_the_next_one_mends_it(run: Run, prepared: Prepared) -> None:
    prepared(*PLAN)
    prepared(*OTHER)
    again = [*OTHER[:-1], "plan"]
    left = killed("from rackplan.cli import main; main()", Path("plan"), *again)
    (line,) = run("score", "plan").err.splitlines()
    assert "plan: report.html, topology.svg: not of this plan.json" in line
    assert f"plan: {left.name}: of a run that was killed while it wrote" in line
    assert run(*again).code == 0
    (line,) = run("score", "plan").err.splitlines()
    assert line.startswith(f"rackplan: note: plan: {left.name}: of a run that was killed")


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
