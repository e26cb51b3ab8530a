"""``rackplan explain``: figures that add up, at most 100 columns, and capacity before speed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rackplan
from cost.deployment import Deployment
from cost.resolve import resolve_model
from cost.terms.pipeline import BUBBLE
from cost.workload import Workload
from placement.options import PlanOptions
from placement.plan_file import plan_to_dict, plan_to_json, read_plan
from placement.planner import make_plan
from rackplan.options import model_loads
from rackplan.views.evidence import machine_figures, term_evidence, used_figures
from rackplan.views.explain import at_peaks, cache_note, explain_plan, residual_words
from topology import resolve_cluster
from topology.figures import weakest

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., Any]

ROOT = Path(rackplan.__file__).parent.parent
CASES = [
    ("mixtral-8x7b", "hgx-h100", 0),
    ("llama-3.1-70b", "hgx-h100@16", 3),
    ("deepseek-v3", "hgx-h100@16", 0),
]


@cache
def plan_text(model: str, cluster: str, batch: int = 0) -> str:
    """The plan file of a case, made once."""
    deployment = Deployment(resolve_cluster(cluster), resolve_model(model), Workload(batch=batch))
    loads = model_loads(deployment.model, [], 0)
    stages = 2 if model == "deepseek-v3" else None  # so that one of them has hops
    options = PlanOptions(time_limit_s=0.0, stages=stages)
    return plan_to_json(plan_to_dict(make_plan(deployment, loads, options)))


def write_plan(folder: Path, *case: Any) -> Path:
    path = folder / "plan.json"
    path.write_text(plan_text(*case))
    return path


@pytest.mark.wide
@pytest.mark.parametrize("case", CASES, ids=str)
def test_json_adds_up_to_the_score(run: Run, tmp_path: Path, case: tuple[str, str, int]) -> None:
    path = write_plan(tmp_path, *case)
    result = run("explain", path, "--json")
    assert (result.code, result.err) == (0, "")
    assert result.data["longest_wait_ms"] == pytest.approx(2000 * result.data["score"]["step_s"])
    assert result.data["mean_wait_ms"] == pytest.approx(1500 * result.data["score"]["step_s"])
    said = f"waits at most two steps for its next token: {result.data['longest_wait_ms']:,.2f} ms"
    assert said in " ".join(run("explain", path).out.split())
    found = result.data
    score = json.loads(path.read_text())["score"]
    assert found["score"] == score
    assert sum(row["seconds"] for row in found["terms"]) == pytest.approx(score["step_s"])
    assert sum(row["share"] for row in found["terms"]) == pytest.approx(1.0)
    assert sum(row["share"] for row in found["limits"]) == pytest.approx(1.0)
    assert found["limits"][0]["resource"] == score["bound_by"]
    assert found["step_over_lower"] == pytest.approx(score["step_s"] / score["lower_step_s"])
    memory = found["memory"]
    assert {part["use"]: part["bytes"] for part in memory["parts"]} == score["hbm_bytes"]
    assert sum(part["share"] for part in memory["parts"]) == pytest.approx(1.0)
    assert memory["left_bytes"] == score["hbm_bytes"]["free"] >= 0
    assert memory["max_batch_per_gpu"] == score["max_batch_per_gpu"] >= found["layout"]["batch_per_gpu"]
    for row in found["limits"]:
        assert 0 <= row["busy_at_peak_s"] <= score["lower_step_s"] * (1 + 1e-9)
    for row in found["terms"]:
        # stages that are even at the expected rates are not at peak
        assert 0 <= row["peak_s"] <= row["seconds"] * (1 + 1e-9) or row["term"] == BUBBLE.name
        assert row["limits_s"] == score["parts_s"][row["term"]]
        assert sum(row["limits_s"].values()) == pytest.approx(row["seconds"])
        assert row["bound_by"][0] == max(row["limits_s"], key=row["limits_s"].get)
        assert set(row["bound_by"]) <= {limit["resource"] for limit in found["limits"]}
        assert row["bound_by"]
    assert found["weakest"]["kind"] == score["evidence"]
    assert found["weakest"]["figures"]
    assert all(figure["source"] for figure in found["figures"])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_text_says_it_in_a_hundred_columns(run: Run, tmp_path: Path, case: tuple[str, str, int]) -> None:
    result = run("explain", write_plan(tmp_path, *case))
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in result.out
    assert lines[0].startswith(f"{case[0]} fits {case[1]}")
    for words in (
        "Expected step",
        "lower bound",
        "share",
        "KV per",
        "Weakest evidence",
        "Assumptions:",
    ):
        assert words in result.out
    assert "overhead: fixed delays" in " ".join(result.out.split()).lower()
    numbers = {int(found) for found in re.findall(r" \[(\d+)\]$", result.out, re.MULTILINE)}
    listed = [int(found) for found in re.findall(r"^\[(\d+)\] ", result.out, re.MULTILINE)]
    assert listed == sorted(numbers) == list(range(1, len(numbers) + 1))
    assert ("synthetic" in result.out) == (case[0] != "llama-3.1-70b")


def test_figures_are_those_the_score_rests_on(tmp_path: Path) -> None:
    plan = read_plan(write_plan(tmp_path, *CASES[2]))
    assert weakest(used.figure.kind for used in used_figures(plan)) is plan.score.evidence
    of = {used.of for used in machine_figures(plan)}
    assert of == {"h100-sxm", "nvlink4", "ib-ndr400"}
    assert term_evidence(plan, "pipeline_bubble") is None
    for term in plan.score.terms_s:
        evidence = term_evidence(plan, term)
        assert (evidence is None) == (term == "pipeline_bubble")
        assert evidence is None or evidence <= plan.score.evidence
    found = explain_plan(plan)
    assert [row.seconds for row in found.terms] == sorted((row.seconds for row in found.terms), reverse=True)
    assert found.peaks.step_s < plan.score.step_s
    assert found.peaks.lower_step_s == pytest.approx(plan.score.lower_step_s)
    assert at_peaks(plan).terms_s == found.peaks.terms_s
    assert "2 stages save weights only" in cache_note(plan)


@pytest.mark.wide
def test_what_measured_runs_took_is_one_line_apart(run: Run, tmp_path: Path) -> None:
    path = write_plan(tmp_path, *CASES[1])
    found = run("explain", path, "--json").data
    plain = run("explain", path, "--no-residual", "--json").data
    assert set(found["residual"]) == {"factor", "weight"}
    assert plain["residual"] is None
    assert {**found, "residual": None} == plain
    (line,) = [line for line in run("explain", path).out.splitlines() if line.startswith("Residual")]
    assert line.startswith("Residual      ")
    assert "Residual" not in run("explain", path, "--no-residual").out
    two_stages = write_plan(tmp_path, *CASES[2])
    assert run("explain", two_stages, "--json").data["residual"] == {"factor": 1.0, "weight": 0.0}
    assert "Residual      no measured run is near\n" in run("explain", two_stages).out


def test_the_words_of_the_residual() -> None:
    assert residual_words((0.94, 0.62)) == (
        "measured runs near this one took 0.94 times the physics (weight 0.62; learned, not applied to the "
        "figures above)"
    )
    assert residual_words((1.001, 0.004)) == "no measured run is near"


def test_a_plan_that_does_not_fit_says_so_before_any_speed(run: Run, tmp_path: Path) -> None:
    path = write_plan(tmp_path, *CASES[0])
    data = json.loads(path.read_text())
    data["inputs"]["workload"]["batch"] = 10**6
    path.write_text(json.dumps(data))
    for more in ((), ("--json",)):
        result = run("explain", path, *more)
        assert result.code in {2, 3}
        assert "HBM capacity binds" in result.error_line
        assert "tok/s" not in result.error_line


def test_names_cannot_draw_on_a_terminal(run: Run, tmp_path: Path) -> None:
    path = write_plan(tmp_path, *CASES[0])
    data = json.loads(path.read_text())
    data["inputs"]["loads"]["names"] = ["[bold]loads[/bold] :smile:"]
    path.write_text(json.dumps(data))
    assert "[bold]loads[/bold] :smile:" in " ".join(run("explain", path).out.split())


@pytest.mark.wide
def test_a_narrow_terminal_gets_ruled_tables_that_fit(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    write_plan(tmp_path, *CASES[0])
    ours, theirs = pty.openpty()
    env = {
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "72",
        "TERM": "xterm",
        "NO_COLOR": "1",
        "PYTHONIOENCODING": "utf-8",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "rackplan", "explain", "plan.json"], stdout=theirs, cwd=tmp_path, env=env
    ) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            seen += part
    os.close(ours)
    assert process.returncode == 0
    text = seen.decode()
    assert "─" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(len(line.rstrip("\r")) for line in plain.split("\n")) <= 72
