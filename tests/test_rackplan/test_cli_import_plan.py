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
    assert run("score", "back/plan.json", "--json").data["step_s"] == back["score"]["step_s"]


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
