"""``rackplan import-plan``: the same plan comes back; anyone's is scored, and hostile files do nothing."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]

COMMON = ("--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--batch", "4")
PLAN = ("plan", *COMMON, "--time-limit", "0", "--redundant", "8", "--tp", "1", "-o", "plan")
FILES = {"sglang": "x.json", "trtllm": "x.yaml", "vllm-ascend": "x.json", "vllm": "x.jsonl"}


def imported(run: Run, file: str, kind: str, *more: object) -> Any:
    return run("import-plan", file, "--from", kind, *COMMON, *more, "-o", "back")


@pytest.mark.wide
@pytest.mark.parametrize("engine", FILES)
def test_round_trip(run: Run, prepared: Run, tmp_path: Path, engine: str) -> None:
    prepared(*PLAN)
    assert run("export", "plan/plan.json", "--to", engine, "-o", FILES[engine]).code == 0
    result = imported(run, FILES[engine], engine)
    assert (result.code, result.err) == (0, "")
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == [
        "plan.json",
        "report.html",
        "topology.svg",
    ]
    ours = json.loads((tmp_path / "plan/plan.json").read_text())
    back = json.loads((tmp_path / "back/plan.json").read_text())
    for key in ("experts", "stages", "layout", "score", "baselines", "failures"):
        assert back[key] == ours[key], key
    for key in ("objective", "bound", "status"):
        assert back["proof"][key] == pytest.approx(ours["proof"][key])
    assert "imported from" in back["proof"]["log"][0]
    assert run("score", "back/plan.json", "--json").data == back["score"]


def linear(tmp_path: Path, *, twice: bool = False) -> str:
    rows = np.tile(np.arange(16) % 8, (32, 1))
    if twice:
        rows[5] = np.sort(rows[5])
    np.save(tmp_path / "map.npy", rows)
    return "map.npy"


@pytest.mark.wide
@pytest.mark.usefixtures("short")
def test_a_plan_of_anyone_is_scored_and_improved(run: Run, tmp_path: Path) -> None:
    file = linear(tmp_path)
    assert imported(run, file, "npy", "--loads", "zipf:1.5").code == 0
    data = json.loads((tmp_path / "back/plan.json").read_text())
    assert data["proof"]["status"] == "FEASIBLE"
    assert data["score"]["balancedness"] == data["baselines"]["linear"]["balancedness"]
    result = run("replan", "back/plan.json", "--time-limit", 0, "-o", "better")
    assert result.code == 0, result.err
    better = json.loads((tmp_path / "better/plan.json").read_text())
    assert better["score"]["balancedness_mean"] > data["score"]["balancedness_mean"]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, ("ran", "w")


def hostile(tmp_path: Path) -> dict[str, tuple[str, bytes]]:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<i8", "fortran_order": False, "shape": (32, 10**9)}
    )
    objects = io.BytesIO()
    np.save(objects, np.array([[Evil()] * 2] * 32, dtype=object), allow_pickle=True)
    rows = {str(layer): [*range(8)] * 2 for layer in range(32)}
    vllm = {"record_type": "eplb_initial_mapping", "version": 1, "num_redundant_experts": 8, "num_slots": 16}
    return {
        "pickle.pt": ("sglang", pickle.dumps(Evil())),
        "objects.npy": ("npy", objects.getvalue()),
        "huge.npy": ("npy", header.getvalue()),
        "tags.yaml": ("trtllm", b'num_slots: !!python/object/apply:builtins.open ["ran", "w"]\n'),
        "layer.yaml": ("trtllm", b"num_slots: 8\ninitial_global_assignments:\n  1000000000: [0, 1]\n"),
        "deep.yaml": ("trtllm", b"[" * 50_000),
        "layer.jsonl": (
            "vllm",
            json.dumps({**vllm, "initial_global_assignments": {**rows, "1000000000": [0]}}).encode(),
        ),
        "count.json": ("vllm-ascend", b'{"moe_layer_count": 1000000000, "layer_list": []}'),
        "slot.json": ("sglang", json.dumps({"physical_to_logical_map": [[10**9] * 16] * 32}).encode()),
        "deep.json": ("sglang", b"[" * 50_000),
        "empty.json": ("sglang", b""),
        "counts.json": ("sglang", json.dumps({"logical_count": [[1] * 8] * 32}).encode()),
        "cut.json": ("vllm-ascend", b'{"moe_layer_count": 32, "layer_list": [{"lay'),
        "binary.yaml": ("trtllm", b"\x80\x04\xff"),
    }


@pytest.mark.parametrize("name", sorted(hostile(None)))  # type: ignore[arg-type]
def test_hostile_files_end_with_one_line(run: Run, tmp_path: Path, name: str) -> None:
    kind, data = hostile(tmp_path)[name]
    (tmp_path / name).write_bytes(data)
    result = imported(run, name, kind)
    assert result.code == 2
    assert name in result.error_line
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_requests_that_cannot_be_met(run: Run, tmp_path: Path) -> None:
    file = linear(tmp_path)
    assert "takes 16 GPUs" in imported(run, file, "npy", "--ep", 16).error_line
    assert "do not divide" in imported(run, file, "npy", "--ep", 3).error_line
    too_wide = imported(run, file, "npy", "--ep", 4, "--tp", 10**6)
    assert too_wide.code == 2
    assert "--tp 1000000: does not divide the 4 GPUs of an EP group" in too_wide.error_line
    assert "expected sglang" in imported(run, file, "csv").error_line
    big = run("import-plan", file, "--from", "npy", *COMMON[:4], "--batch", 10**6, "-o", "back")
    assert big.code == 3
    assert "the largest that fits" in big.error_line
    dense = run("import-plan", file, "--from", "npy", "--model", "llama-3.1-8b", *COMMON[2:4], "-o", "back")
    assert "no routed experts" in dense.error_line
    assert [path.name for path in tmp_path.iterdir()] == ["map.npy"]
