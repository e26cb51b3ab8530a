"""``rackplan replay``: what it says of each policy and writes, windows of single steps, and what Ctrl-C keeps."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from helpers import Run
from placement.online import policies

LAYERS = 3
STATIC, VLLM = ("--policy", "static"), ("--policy", "vllm")
FILES = ("--loads", "day.npy", "--loads", "night.npy")


@pytest.fixture
def replay(run: Run, few_layers: Callable[[str, int], Path], tmp_path: Path) -> Run:
    """Run ``replay`` of a small deployment; recordings of windows lie beside it."""
    rng = np.random.default_rng(3)
    drawn = rng.poisson(1000 * rng.lognormal(0, 0.5, (5, LAYERS, 8)))
    np.save(tmp_path / "day.npy", drawn[:3])
    np.save(tmp_path / "night.npy", drawn[3:])
    model = few_layers("mixtral-8x7b", LAYERS)
    return lambda *args: run("replay", "--model", model, "--cluster", "hgx-h100", *args)


def test_recordings_of_single_steps_are_merged_into_windows(replay: Run, tmp_path: Path) -> None:
    folder = tmp_path / "trt"
    folder.mkdir()
    (folder / "meta_info.json").write_text('{"num_experts": 8, "num_experts_per_token": 2}')
    drawn = np.random.default_rng(0).poisson(100, (80, LAYERS, 8))
    steps = {f"{step}_{layer}": drawn[step, layer] for step in range(80) for layer in range(LAYERS)}
    save_file(steps, folder / "rank0.safetensors")
    data = replay("--loads", "trt", *STATIC, *VLLM, "--json").data
    assert data["windows"] == 32
    said = [note["text"] for note in data["notes"]]
    assert any("ingle steps were recorded; each window represents 3,000 steps" in text for text in said)


def test_files(replay: Run, tmp_path: Path) -> None:
    assert replay(*FILES, *STATIC, *VLLM, "-o", "all").code == 0
    written = {path.name: path.read_text() for path in (tmp_path / "all").iterdir()}
    assert written.keys() == {"replay.csv", "replay.json", "report.html"}
    assert "Balance by window" in written["report.html"]
    assert json.loads(written["replay.json"])["scored"] == 4
    rows = list(csv.DictReader(written["replay.csv"].splitlines()))
    assert [(row["policy"], row["window"]) for row in rows[3:5]] == [("static", "5"), ("vllm", "2")]


def test_ctrl_c_keeps_what_is_done(replay: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def place(self: object, old: object) -> object:
        seen.append(1)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return old

    monkeypatch.setattr(policies.Eplb, "place", place)
    result = replay(*FILES, *VLLM, *STATIC, "--json")
    assert result.code == 130
    assert (result.data["windows"], result.data["interrupted"]) == (3, True)
