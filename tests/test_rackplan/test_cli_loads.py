"""``rackplan loads``: what is printed, for people and programs, and how bad files end."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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


def test_json_describes_a_recording(run: Callable[..., Any], recording: Path) -> None:
    found = run("loads", recording, "--json").data["files"]["day.json"]
    values = windows()[[0, 2, 3, 4]].astype(float)
    total = values.sum(axis=0)
    skew = total.max(axis=1) / total.mean(axis=1)
    assert found["kind"] == "SGLang JSON"
    assert (found["layers"], found["experts"], found["layers_without_tokens"]) == (LAYERS, EXPERTS, [])
    assert found["windows"] == {"total": 5, "empty": 1, "kept": 4, "scenarios": 4}
    assert found["tokens"] == total.sum()
    assert found["skew"]["max_over_mean"]["mean"] == pytest.approx(skew.mean())
    assert found["skew"]["max_over_mean"]["worst_layer"] == int(skew.argmax())
    assert found["skew"]["layers"]["7"]["coefficient_of_variation"] == pytest.approx(
        total[7].std() / total[7].mean()
    )
    first, last = (v / v.sum(axis=1, keepdims=True) for v in (values[0], values[-1]))
    apart = np.abs(first - last).sum(axis=1).mean() / 2
    assert found["drift"]["first_to_last"]["distance"] == pytest.approx(apart)
    assert 0 < found["drift"]["first_to_last"]["by_chance"] < apart
    assert "1 of 5 windows dropped (empty)" in found["notes"]


def test_json_says_how_far_choices_are_from_independent(run: Callable[..., Any], tmp_path: Path) -> None:
    """Tokens choose experts e and e + 4: 4 of the 28 pairs of 8 experts, all equally often."""
    first = np.arange(400).reshape(-1, 1) % 4
    for name, chosen in (("pairs.npy", [first, first + 4]), ("single.npy", [first])):
        np.save(tmp_path / name, np.stack(chosen, axis=2))
    files = run("loads", "pairs.npy", "single.npy", "--json").data["files"]
    assert files["pairs.npy"]["coactivation"]["distance"] == pytest.approx(1 - 4 / 28)
    assert files["single.npy"]["coactivation"] is None


class Runs:
    """Pickled, it makes a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ran",)


def hostile(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps({"logical_count": Runs()}, 2))
    return path


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: hostile(folder / "x.pt"), "none of its code was executed"),
        (lambda folder: folder / "none.pt", "there is no such file"),
        (lambda folder: (folder / "x.pt", (folder / "x.pt").write_bytes(b""))[0], "not a complete .pt file"),
    ],
)
def test_bad_files_end_in_one_line(
    run: Callable[..., Any], tmp_path: Path, make: Callable[[Path], Any], words: str
) -> None:
    target = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    for arguments in (
        ("loads", target),
        ("loads", target, "--json"),
        ("plan", "--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--loads", target, "-o", tmp_path / "o"),
    ):
        if str(target).startswith("lognormal") and arguments[0] == "plan":
            continue
        result = run(*arguments)
        assert result.code == 2
        assert words in result.error_line
        assert sorted(tmp_path.iterdir()) == before
