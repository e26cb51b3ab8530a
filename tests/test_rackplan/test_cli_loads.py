"""``rackplan loads`` and ``--windows``: what is printed, for people and programs, and how bad files end."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

LAYERS, EXPERTS = 32, 8  # mixtral-8x7b
SHARED = Path(__file__).parents[3] / "shared" / "data" / "expert_loads"


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
    assert "1 of 5 windows empty, dropped" in found["notes"]
    assert found["model"] is None


def test_the_summary_has_it_all_in_100_columns(run: Callable[..., Any], recording: Path) -> None:
    out = run("loads", recording, "--model", "mixtral-8x7b").out
    for words in (
        "day.json: SGLang JSON",
        "32 with tokens, 0 to 31",
        "5, 4 of them with tokens",
        "fits mixtral-8x7b",
        "max / mean",
        "coefficient of variation",
        "window to next window",
        "first to last window",
        "worst, layer",
        "█",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) <= 100


def test_a_pipe_without_blocks_gets_ascii(recording: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rackplan", "loads", recording],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    text = done.stdout.decode("ascii")
    assert "\\u" not in text
    assert "#" in text
    assert done.stderr == b""


def test_merged_windows_and_one_window(run: Callable[..., Any], recording: Path, tmp_path: Path) -> None:
    found = run("loads", recording, "--windows", 2, "--json").data["files"]["day.json"]
    assert found["windows"] == {"total": 5, "empty": 1, "kept": 4, "scenarios": 2}
    assert "merged into 2" in run("loads", recording, "--windows", 2).out
    np.save(tmp_path / "one.npy", windows()[0])
    both = run("loads", recording, tmp_path / "one.npy", "--json").data["files"]
    assert both["one.npy"]["drift"] == {"consecutive": None, "first_to_last": None}
    assert "nothing to compare with" in run("loads", tmp_path / "one.npy").out


def test_dense_rows_are_found(run: Callable[..., Any], tmp_path: Path) -> None:
    values = windows()
    values[:, :3] = 0
    np.save(tmp_path / "x.npy", values)
    found = run("loads", tmp_path / "x.npy", "--json").data["files"]["x.npy"]
    assert found["layers_without_tokens"] == [0, 1, 2]
    assert found["layers"] == LAYERS - 3
    line = run("loads", tmp_path / "x.npy", "--model", "mixtral-8x7b").error_line
    assert "layer 0 of the model" in line


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
        (lambda folder: hostile(folder / "x.pt"), "nothing in it was run"),
        (lambda folder: folder / "none.pt", "there is no such file"),
        (lambda folder: folder, "a folder without"),
        (lambda _: "lognormal:0.63", "a generator of loads"),
        (lambda folder: (folder / "x.yaml", (folder / "x.yaml").write_text("a: 1"))[0], "suffix is .yaml"),
        (lambda folder: (folder / "x.pt", (folder / "x.pt").write_bytes(b""))[0], "not a whole .pt file"),
        (lambda folder: (folder / "x.jsonl", (folder / "x.jsonl").write_text(""))[0], "no line at all"),
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


def test_a_model_without_experts_or_with_others(run: Callable[..., Any], recording: Path) -> None:
    assert "no routed experts" in run("loads", recording, "--model", "llama-3.1-70b").error_line
    assert "shape [5, 32, 8]; the model needs" in run("loads", recording, "--model", "deepseek-v3").error_line
    assert "expected 1 or more" in run("loads", recording, "--windows", 0).error_line


def test_a_plan_takes_the_windows_as_scenarios(
    run: Callable[..., Any], recording: Path, tmp_path: Path
) -> None:
    made = run(
        *("plan", "--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--loads", recording),
        *("--windows", 2, "--time-limit", 0, "-o", tmp_path / "plan"),
    )
    assert made.code == 0, made.err
    text = (tmp_path / "plan" / "plan.json").read_text()
    assert "4 windows merged into 2 scenarios of 2" in " ".join(made.out.split())
    assert "day.json#0 to 2" in text
    scored = run("score", tmp_path / "plan" / "plan.json", "--loads", recording, "--windows", 1, "--json")
    assert scored.code == 0


@pytest.mark.skipif(not SHARED.is_dir(), reason="the reference loads are not beside the repository")
def test_the_real_loads_are_described(run: Callable[..., Any]) -> None:
    names = [SHARED / f"decode_in2000out100.{suffix}" for suffix in ("npy", "json")]
    files = run("loads", *names, "--model", "deepseek-v3", "--json").data["files"]
    array, text = files.values()
    assert array["skew"]["max_over_mean"]["mean"] == pytest.approx(text["skew"]["max_over_mean"]["mean"])
    assert array["layers"] == 58
    assert array["experts"] == 256


def test_a_routing_trace_is_described_as_one(run: Callable[..., Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(0, EXPERTS, (400, LAYERS))
    np.save(tmp_path / "pairs.npy", np.stack([first, first ^ 1], axis=2).astype(np.int16))
    found = run("loads", "pairs.npy", "--model", "mixtral-8x7b", "--json").data["files"]["pairs.npy"]
    assert (found["tokens"], found["layers"], found["experts"], found["choices"]) == (400, LAYERS, EXPERTS, 2)
    # each of the 4 pairs is a quarter of the tokens; independent choices would make each of 28 pairs equally likely
    assert found["coactivation"]["distance"] == pytest.approx(1 - 4 / 28, abs=0.01)
    assert found["next_layer"]["beyond_chance"] < 0.05
    assert found["pairs"][0]["lift"] == pytest.approx(7, rel=0.5)
    assert found["contiguous"]["4"]["domains_per_token"] == 1
    assert found["contiguous"]["4"]["if_independent"] == pytest.approx(2 - 1 / 7, rel=0.02)
    text = run("loads", "pairs.npy").out
    assert "experts used together most" in text
    assert max(map(len, text.splitlines())) <= 100
    assert run("loads", "pairs.npy", "--model", "deepseek-v3").code == 2
