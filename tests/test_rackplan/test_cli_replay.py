"""``rackplan replay``: what it prints and writes, what it refuses, and what Ctrl-C keeps."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from placement.online import policies

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
    return ["--model", model, "--cluster", "hgx-h100"]


FILES = ("--loads", "day.npy", "--loads", "night.npy")


def test_json_has_what_the_contract_says(run: Run, here: list[object]) -> None:
    data = run("replay", *here, *FILES, *POLICIES, "--json").data
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
        mine = [each for each in data["by_window"] if each["policy"] == row["policy"]]
        assert row["worst"] == min(each["balancedness"] for each in mine)
        moved = [each["bytes"] for each in data["replans"] if each["policy"] == row["policy"]]
        assert row["bytes_moved"] == sum(moved)
        assert (row["moves_s"] > 0) == any(moved)
    static, vllm = data["policies"][:2]
    assert (static["copies_moved"], static["interval"], static["start"]) == (0, 0, "static plan")
    assert (vllm["tokens_gained"], vllm["start"]) == (0, "linear")
    assert data["best"].keys() == {"policy", "interval", "interval_steps", "budget"}
    assert data["window_names"][3] == "night.npy#0"


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
    said = [note["text"] for note in data["notes"]]
    assert any("ingle steps were recorded; each window represents 3,000 steps" in text for text in said)


def test_files(run: Run, here: list[object], tmp_path: Path) -> None:
    assert run("replay", *here, *FILES, "--policy", "static", "--policy", "vllm", "-o", "all").code == 0
    written = {path.name: path.read_text() for path in (tmp_path / "all").iterdir()}
    assert written.keys() == {"replay.csv", "replay.json", "report.html"}
    assert "Balance by window" in written["report.html"]
    assert json.loads(written["replay.json"])["scored"] == 4
    rows = list(csv.DictReader(written["replay.csv"].splitlines()))
    assert [(row["policy"], row["window"]) for row in rows[3:5]] == [("static", "5"), ("vllm", "2")]


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
