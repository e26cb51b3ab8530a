"""``rackplan validate``: the report, the JSON, and what it refuses; predictions are made up here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cost.validation.predict import Prediction
from cost.validation.read import Point, read_measurements, shipped_files
from cost.validation.validation import validation
from goldens import require_doc, require_golden
from rackplan.report.validate import frontiers_doc, validate_doc

HEADER = "id,quantity,measured,phase,model,cluster,attention_dp,batch_per_gpu,context,pair\n"
ROWS = (
    "one,tok_s_per_gpu,100,decode,deepseek-v3,hgx-h100,16,8,4000,x\n"
    "two,tok_s_per_gpu,200,decode,deepseek-v3,H200,16,16,4000,x\n"
    "two,tpot_ms,80,decode,deepseek-v3,H200,16,16,4000,\n"
    "lost,tpot_ms,80,decode,deepseek-v3,V100,16,16,4000,\n"
)


def made_up(points: Sequence[Point], **_: object) -> list[Prediction]:
    """A tenth too much for throughput, half for times."""
    return [Prediction(point.measured * (1.1 if "tok" in point.quantity else 0.5)) for point in points]


@pytest.fixture
def points_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of four rows, and a predictor that needs no model."""
    monkeypatch.setattr("cost.validation.predict.predict_serving", made_up)
    monkeypatch.setattr("cost.validation.predict.predict_alltoall", made_up)
    path = tmp_path / "points.csv"
    path.write_text(HEADER + ROWS)
    return path


def test_json_is_the_contract(run: Callable[..., Any], points_file: Path) -> None:
    done = run("validate", points_file, "--json")
    assert done.code == 0, done.err
    speed, times = done.data["quantities"]
    assert (times["rows"], times["rows_predicted"], times["coverage"]) == (2, 1, 0.5)
    assert (speed["bias"], times["bias"]) == (pytest.approx(0.1), pytest.approx(-0.5))
    first, *_, last = done.data["points"]
    assert [first[key] for key in ("file", "id", "measured", "reason")] == ["points.csv", "one", 100, ""]
    assert (last["predicted"], last["error"]) == (None, None)
    assert "'V100' is not in the catalog" in last["reason"]


def test_points_read_as_they_did(points_file: Path) -> None:
    found = validation("points.csv", read_measurements(points_file))
    require_golden("validate", validate_doc([found]))
    assert len(found.to_frame()) == 4
    assert found.plot().layout.xaxis.type == "log"


def test_the_learned_correction_is_switched_off(run: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "served.csv"
    head = (
        "id,quantity,measured,phase,model,cluster,engine,weights,tp,moe_tp,concurrency,isl,osl,draft_tokens\n"
    )
    rows = [
        f"{name},tpot_ms,9,aggregated,llama-3.1-70b,hgx-h200,trtllm,fp8,8,8,16,1000,200,{drafts}\n"
        for name, drafts in (("told", "no"), ("untold", "unknown"))
    ]
    path.write_text(head + "".join(rows))
    on, off = run("validate", path, "--json").data, run("validate", path, "--physics", "--json").data
    assert (on["quantities"][0]["corrected"], off["quantities"][0]["corrected"]) == (True, False)
    assert on["points"][0]["predicted"] != off["points"][0]["predicted"]
    assert on["points"][1]["predicted"] == off["points"][1]["predicted"]
    assert "did not correct the predictions (--physics)" in run("validate", path, "--physics").out


def test_frontiers_beside_layouts_that_are_chosen(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    head = "id,quantity,measured,phase,model,cluster,weights,tp,concurrency,isl,osl\n"
    runs = (("fast", "tpot_ms", 9, 8), ("fast", "ttft_ms", 90, 8), ("slow", "tpot_ms", 12, 64),
            ("slow", "ttft_ms", 200, 64), ("half", "tpot_ms", 9, 4))  # fmt: skip
    rows = (
        f"{name},{what},{value},aggregated,llama-3.1-70b,H200,fp8,8,{n},1024,1024\n"
        for name, what, value, n in runs
    )
    path.write_text(head + "".join(rows))
    doc = frontiers_doc({"runs.csv": read_measurements(path)}, physics=False)
    require_golden("frontiers", doc)
    found = doc.data
    (frontier,) = found["frontiers"]
    assert (frontier["gpu"], frontier["runs"], frontier["most_gpus"]) == ("h200-sxm", 2, 8)
    assert found["frontier_files"] == [{"file": "runs.csv", "frontiers": 1, "runs_left_out": 1}]
    assert [point["id"] for point in found["frontier_points"]] == ["slow", "fast"]
    own, every = (
        [row["bias"] for row in found["errors"] if row["gpu"] == gpu] for gpu in ("h200-sxm", "all")
    )
    assert own == every
    require_doc(frontiers_doc({"none.csv": []}, physics=False))


def test_without_a_file_the_shipped_points(run: Callable[..., Any], points_file: Path) -> None:
    assert points_file.exists()
    assert {row["file"] for row in run("validate", "--json").data["quantities"]} == {
        path.name for path in shipped_files()
    }
