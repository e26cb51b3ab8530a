"""``rackplan loads``: what is printed, for people and programs, and how bad files end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import rackplan
from cost.experts.traces.description import describe
from goldens import require_doc, require_golden
from helpers import Run
from rackplan.report.loads import loaded_doc, loads_doc

LAYERS, EXPERTS = 32, 8  # mixtral-8x7b


def windows(count: int = 5) -> np.ndarray:
    values = np.random.default_rng(0).integers(1, 1000, (count, LAYERS, EXPERTS))
    values[1] = 0
    return values


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "day.json"
    path.write_text(json.dumps({"logical_count": windows().tolist()}))
    return path


def test_a_recording_is_described_for_programs(run: Run, recording: Path) -> None:
    data = run("loads", recording, "--json").data
    (found,) = data["recordings"]
    assert [found[key] for key in ("windows", "windows_empty", "windows_kept", "scenarios")] == [5, 1, 4, 4]
    assert found["tokens"] == windows().sum()
    assert "day.json: 1 of 5 windows dropped (empty)." in [note["text"] for note in data["notes"]]


def test_files_read_as_they_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recording: Path) -> None:
    """Tokens choose experts e and e + 4: 4 of the 28 pairs of 8 experts, all equally often."""
    monkeypatch.chdir(tmp_path)
    first = np.arange(400).reshape(-1, 1) % 4
    for name, chosen in (("pairs.npy", [first, first + 4]), ("single.npy", [first])):
        np.save(name, np.stack(chosen, axis=2))
    names = (recording.name, "pairs.npy", "single.npy")
    doc = loads_doc({name: describe(name, None) for name in names})
    pairs, single = doc.data["traces"]
    assert pairs["dependent_share"] == pytest.approx(1 - 4 / 28)
    assert single["dependent_share"] is None
    require_golden("loads", doc)


def test_one_file_is_told_as_labels_and_values(run: Run, tmp_path: Path) -> None:
    """Ids of one byte; an expert with more than half of a layer is impossible where a token chooses several."""
    np.save(
        tmp_path / "ids.npy",
        np.random.default_rng(0).permuted(np.tile(np.arange(8, dtype=np.uint8), (64, 32, 1)), axis=2)[
            ..., :2
        ],
    )
    said = run("loads", tmp_path / "ids.npy").out
    assert re.search(r"tokens +64\b", said)
    assert re.search(r"layers +32\b", said)
    crowded = np.ones((2, 8))
    crowded[1, 5] = 21
    np.save(tmp_path / "crowded.npy", crowded)
    notes = [note["text"] for note in run("loads", tmp_path / "crowded.npy", "--json").data["notes"]]
    assert any(
        "expert 5 has 75.0% of the tokens of layer 1: more than 1/2 is impossible" in text for text in notes
    )


def test_loads_of_python_are_a_document_a_frame_and_a_chart() -> None:
    loads = rackplan.make_loads("mixtral-8x7b", "zipf:0.5")
    doc = loaded_doc(loads)
    require_doc(doc)
    assert len(loads.to_frame()) == LAYERS * EXPERTS
    assert next(line.name for line in loads.plot().data).startswith("evenest: layer ")
