"""``rackplan import-plan``: the same plan comes back; anyone's is scored, and hostile files do nothing."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import PLAN, Run

ASK = ("--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--batch", "4")


@pytest.mark.wide
def test_an_exported_plan_comes_back_the_same(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "--batch", "4", "--redundant", "8", "--tp", "1")
    assert run("export", "plan/plan.json", "--to", "sglang", "-o", "x.json").code == 0
    result = run("import-plan", "x.json", "--from", "sglang", *ASK, "-o", "back")
    assert (result.code, result.err) == (0, "")
    names = sorted(path.name for path in (tmp_path / "back").iterdir())
    assert names == ["plan.json", "report.html", "topology.svg"]
    ours, back = (json.loads((tmp_path / name / "plan.json").read_text()) for name in ("plan", "back"))
    for key in ("experts", "stages", "layout", "score", "baselines", "failures"):
        assert back[key] == ours[key], key
    for key in ("objective", "bound", "status"):
        assert back["proof"][key] == pytest.approx(ours["proof"][key])
    assert "imported from" in back["proof"]["log"][0]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, ("ran", "w")


def objects() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([[Evil()] * 2] * 32, dtype=object), allow_pickle=True)
    return file.getvalue()


def huge() -> bytes:
    file = io.BytesIO()
    header: Any = {"descr": "<i8", "fortran_order": False, "shape": (32, 10**9)}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


@pytest.mark.parametrize(
    ("engine", "name", "data"),
    [
        ("sglang", "pickle.pt", pickle.dumps(Evil())),
        ("npy", "objects.npy", objects()),
        ("npy", "huge.npy", huge()),
        ("trtllm", "tags.yaml", b'num_slots: !!python/object/apply:builtins.open ["ran", "w"]\n'),
        ("trtllm", "layer.yaml", b"num_slots: 8\ninitial_global_assignments:\n  1000000000: [0, 1]\n"),
        ("vllm-ascend", "count.json", b'{"moe_layer_count": 1000000000, "layer_list": []}'),
        ("sglang", "slot.json", json.dumps({"physical_to_logical_map": [[10**9] * 16] * 32}).encode()),
        ("sglang", "deep.json", b"[" * 50_000),
    ],
)
def test_hostile_files_end_with_one_line(
    run: Run, tmp_path: Path, engine: str, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    result = run("import-plan", name, "--from", engine, *ASK, "-o", "back")
    assert result.code == 2
    assert name in result.error_line
    assert [path.name for path in tmp_path.iterdir()] == [name]
