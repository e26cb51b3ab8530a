"""``rackplan replay``: what it prints and writes, what it refuses, and what Ctrl-C keeps."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from placement.online import policies

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Any]

LAYERS = 3
POLICIES = [word for name in policies.NAMES for word in ("--policy", name)]


@pytest.fixture
def here(few_layers: Callable[[str, int], Path], tmp_path: Path) -> list[object]:
    """The options of a small deployment; recordings of windows lie beside it."""
    rng = np.random.default_rng(3)
    drawn = rng.poisson(1000 * rng.lognormal(0, 0.5, (7, LAYERS, 8)))
    np.save(tmp_path / "day.npy", drawn[:3])
    np.save(tmp_path / "night.npy", drawn[3:5])
    np.save(tmp_path / "stored.npy", drawn[5:])
    np.save(tmp_path / "one.npy", drawn[:1])
    np.save(tmp_path / "wide.npy", drawn.repeat(2, axis=2))
    holes = drawn[:4].copy()
    holes[1] = 0
    np.save(tmp_path / "holes.npy", holes)
    model = few_layers("mixtral-8x7b", LAYERS)
    return ["--model", model, "--cluster", "hgx-h100", "--batch", "8", "--redundant", "8", "--ep", "8"]


FILES = ("--loads", "day.npy", "--loads", "night.npy")


def test_json_has_what_the_contract_says(run: Run, here: list[object]) -> None:
    data = run("replay", *here, *FILES, "--scenarios", "stored.npy", *POLICIES, "--json").data
    assert (data["windows"], data["scored"], data["steps_per_window"], data["baseline"]) == (
        5,
        4,
        3000,
        "vllm",
    )
    assert [row["name"] for row in data["policies"]] == [*policies.NAMES]
    wanted = {
        "balancedness",
        "worst",
        "copies_moved",
        "bytes_moved",
        "imbalance_s",
        "moves_s",
        "tokens_gained",
    }
    for row in data["policies"]:
        assert wanted <= row.keys()
        assert 0 < row["worst"] <= row["balancedness"] <= 1
        assert row["worst"] == min(row["by_window"])
        moved = [each["bytes"] for each in row["replans"]]
        assert row["bytes_moved"] == sum(moved)
        assert (row["moves_s"] > 0) == any(moved)
    static, vllm = data["policies"][:2]
    assert (static["copies_moved"], static["interval"], static["start"]) == (0, 0, "static plan")
    assert (vllm["tokens_gained"], vllm["start"]) == (0, "linear")
    assert data["best"].keys() == {"policy", "interval", "interval_steps", "budget", "why"}
    assert data["names"][3] == "night.npy#0"


def test_the_answer_is_the_same_every_time(run: Run, here: list[object]) -> None:
    one, two = (run("replay", *here, *FILES, *POLICIES, "--json").data for _ in range(2))
    assert one.pop("measured").keys() == two.pop("measured").keys() == {"planning_cpu_s", "note"}
    assert one == two


def test_text_names_the_best_and_what_began(run: Run, here: list[object]) -> None:
    result = run("replay", *here, *FILES, "--policy", "vllm", "--policy", "rackplan:10%", "--interval", "2w")
    assert result.code == 0
    text = " ".join(result.out.split())
    assert "5 windows of 3,000 steps" in text
    assert "Windows day.npy (3 windows), night.npy (2 windows)" in text
    assert "planned here for the first window" in text
    assert "vllm begins as engines do" in text
    assert "every 6,000 steps" in text
    assert "output tokens in the time that vllm takes" in text


def test_ours_without_a_plan_is_a_row_beside_ours_with_one(
    run: Run, here: list[object], tmp_path: Path, prepared: Run
) -> None:
    known = "--scenarios", "stored.npy"
    data = run("replay", *here, *FILES, *known, "-o", "all", "--json").data
    rows = {row["name"]: row for row in data["policies"]}
    assert (rows["rackplan"]["start"], rows["rackplan-linear"]["start"]) == ("static plan", "linear")
    first, *later = rows["rackplan-linear"]["replans"]
    copies = LAYERS * 16
    assert first["copies"] > 0.05 * copies >= max(each["copies"] for each in later)
    assert "rackplan-linear" in (tmp_path / "all" / "report.html").read_text()
    bare = run("replay", *here, *FILES, "--policy", "static", "--policy", "rackplan-linear", "--json").data
    assert (
        bare["policies"][1]["by_window"] == rows["rackplan-linear"]["by_window"]
    )  # it knows no stored loads
    prepared("plan", *here, "--loads", "stored.npy", "--time-limit", "0", "-o", "old")
    text = run("replay", "old/plan.json", *FILES, "--policy", "rackplan", "--policy", "rackplan-linear").out
    assert "rackplan-linear: no stored loads, and no budget in the first re-plan" in " ".join(text.split())


def test_empty_windows_are_left_out_and_said(run: Run, here: list[object]) -> None:
    data = run("replay", *here, "--loads", "holes.npy", "--policy", "static", "--json").data
    assert data["windows"] == 3
    assert data["notes"] == ["holes.npy: 1 of 4 windows empty, dropped"]


def test_recordings_of_single_steps_are_merged_into_windows(
    run: Run, here: list[object], tmp_path: Path
) -> None:
    folder = tmp_path / "trt"
    folder.mkdir()
    (folder / "meta_info.json").write_text('{"num_experts": 8, "num_experts_per_token": 2}')
    drawn = np.random.default_rng(0).poisson(100, (80, LAYERS, 8))
    steps = {f"{step}_{layer}": drawn[step, layer] for step in range(80) for layer in range(LAYERS)}
    save_file(steps, folder / "rank0.safetensors")
    data = run("replay", *here, "--loads", "trt", "--policy", "static", "--policy", "vllm", "--json").data
    assert data["windows"] == 32
    assert "single steps were recorded; each window stands for 3,000 steps" in data["notes"][-1]
    few = run("replay", *here, "--loads", "trt", "--policy", "static", "--windows", "4", "--json").data
    assert few["windows"] == 4


def test_a_plan_that_runs(run: Run, here: list[object], prepared: Run) -> None:
    prepared("plan", *here, "--loads", "stored.npy", "--time-limit", "0", "-o", "old")
    data = run("replay", "old/plan.json", *FILES, "--policy", "static", "--policy", "vllm", "--json").data
    assert {row["start"] for row in data["policies"]} == {"old/plan.json"}
    assert data["static"] == "the plan of old/plan.json"
    line = run("replay", "old/plan.json", *FILES, "--batch", "4").error_line
    assert "--batch 4: the plan is given" in line
    line = run("replay", "old/plan.json", *FILES, "--cluster", "hgx-b200").error_line
    assert "the plan is for hgx-h100" in line


def test_policies_that_cannot_place_unequal_slots_are_left_out(run: Run, here: list[object]) -> None:
    here[here.index("--redundant") + 1] = "3"
    data = run("replay", *here, *FILES, "--json").data
    assert {row["name"] for row in data["policies"]} == {
        "static",
        "rackplan",
        "rackplan:1%",
        "rackplan-linear",
    }
    assert [note.partition(" ")[0] for note in data["notes"]] == ["vllm", "sglang"]
    line = run("replay", *here, *FILES, "--policy", "vllm").error_line
    assert "11 slots lie unequally on 8 GPUs: choose --redundant so that they divide" in line


def test_files(run: Run, here: list[object], tmp_path: Path) -> None:
    for name in ("r.html", "r.json", "r.csv", "all"):
        assert run("replay", *here, *FILES, "--policy", "static", "--policy", "vllm", "-o", name).code == 0
    page = (tmp_path / "r.html").read_text()
    assert "Balance from window to window" in page
    assert json.loads((tmp_path / "r.json").read_text())["scored"] == 4
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == [
        "replay.csv",
        "replay.json",
        "report.html",
    ]
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert [(row["policy"], row["window"]) for row in rows[3:5]] == [("static", "5"), ("vllm", "2")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--loads", "one.npy"], "one window"),
        (["--loads", "wide.npy"], "wide.npy: has shape [7, 3, 16]"),
        ([*FILES, "--policy", "eplb"], "expected static, vllm"),
        ([*FILES, "--policy", "vllm:3%"], "only rackplan and rackplan-linear take a budget"),
        ([*FILES, "--policy", "vllm", "--policy", "vllm"], "twice"),
        ([*FILES, "--interval", "0"], "--interval 0: expected steps"),
        ([*FILES, "--interval", "1,5w"], "--interval 1,5w: expected steps"),
        ([*FILES, "--interval", "9" * 400], "expected steps"),
        ([*FILES, "--policy", "static", "--interval", "2w"], "never re-plans"),
        ([*FILES, "--policy", "vllm", "--scenarios", "stored.npy"], "know stored loads"),
        ([*FILES, "--steps-per-window", "0"], "--steps-per-window"),
        ([*FILES, "-o", "r.txt"], ".html, .json or .csv"),
    ],
)
def test_refused(run: Run, here: list[object], words: list[str], message: str) -> None:
    result = run("replay", *here, *words)
    assert result.code == 2
    assert message in result.error_line


def test_a_plan_or_model_and_cluster_is_needed(run: Run, here: list[object]) -> None:
    assert "--cluster is missing" in run("replay", *here[:2], *FILES).error_line


def test_ctrl_c_keeps_what_is_done(run: Run, here: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def place(self: object, old: object) -> object:
        seen.append(1)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return old

    monkeypatch.setattr(policies.Eplb, "place", place)
    result = run("replay", *here, *FILES, "--policy", "vllm", "--policy", "static", "--json")
    assert result.code == 130
    assert (result.data["windows"], result.data["interrupted"]) == (3, True)
