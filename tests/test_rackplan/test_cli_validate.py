"""``rackplan validate``: the report, the JSON, and what it refuses; predictions are made up here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cost.validation.point import Point, Prediction
from cost.validation.predict import ALLTOALL, SERVING
from cost.validation.read import shipped_files
from rackplan.render.text import text_lines
from rackplan.views.validate import file_names, validate_view, validation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

HEADER = "id,quantity,measured,phase,model,cluster,attention_dp,batch_per_gpu,context,pair\n"
ROWS = (
    "one,tok_s_per_gpu,100,decode,deepseek-v3,hgx-h100,16,8,4000,x\n"
    "two,tok_s_per_gpu,200,decode,deepseek-v3,H200,16,16,4000,x\n"
    "two,tpot_ms,80,decode,deepseek-v3,H200,16,16,4000,\n"
    "lost,tpot_ms,80,decode,deepseek-v3,V100,16,16,4000,\n"
)


def made_up(points: Sequence[Point]) -> list[Prediction]:
    """A tenth too much for throughput, half for times."""
    return [Prediction(point.measured * (1.1 if "tok" in point.quantity else 0.5)) for point in points]


@pytest.fixture
def points_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of four rows, and a predictor that needs no model."""
    own = dict.fromkeys((ALLTOALL, SERVING), made_up)
    monkeypatch.setattr("cost.validation.predict._own_predictors", lambda **_: own)
    path = tmp_path / "points.csv"
    path.write_text(HEADER + ROWS)
    return path


def test_json_is_the_contract(run: Callable[..., Any], points_file: Path) -> None:
    done = run("validate", points_file, "--json")
    assert done.code == 0, done.err
    found = done.data["files"]["points.csv"]
    assert found["rows"] == 4
    speed, times = found["quantities"]["tok_s_per_gpu"], found["quantities"]["tpot_ms"]
    assert speed["rows"] == speed["predicted"] == 2
    assert speed["median_abs_error"] == speed["mean_abs_error"] == speed["bias"] == pytest.approx(0.1)
    assert speed["within_20_percent"] == 1.0
    assert (times["rows"], times["predicted"], times["coverage"]) == (2, 1, 0.5)
    assert times["bias"] == pytest.approx(-0.5)
    assert found["pairs"]["tok_s_per_gpu"] == {
        "compared": 1,
        "right": 1,
        "list": [{"ids": ["one", "two"], "right": True}],
    }
    first, *_, last = found["points"]
    assert (first["id"], first["measured"], first["reason"]) == ("one", 100.0, "")
    assert first["predicted"] == pytest.approx(110)
    assert (last["predicted"], last["error"]) == (None, None)
    assert "'V100' is not in the catalog" in last["reason"]


def test_report(run: Callable[..., Any], points_file: Path) -> None:
    done = run("validate", points_file)
    assert done.code == 0, done.err
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[0] == "points.csv: 4 rows"
    assert "one 100 110 +10.0%" in lines
    assert "lost 80 - -" in lines
    assert "tpot_ms 2 1 50.0% 50.0% 50.0% -50.0% 0.0%" in lines
    assert "hgx-h200 1 1 100.0% 10.0% 10.0% +10.0% 100.0%" in lines
    assert "Order tok_s_per_gpu: 1 of 1 pairs (100.0%), A/B pairs" in lines
    assert any(line.startswith("Left out 1: cluster 'V100' is not in the catalog") for line in lines)
    assert max(map(len, done.out.splitlines())) <= 100


def test_strata_are_reported_separately(run: Callable[..., Any], points_file: Path) -> None:
    text = HEADER.replace("pair", "draft_tokens") + ROWS.replace(",x\n", ",unknown\n", 1).replace(
        ",x\n", ",1\n"
    )
    points_file.write_text(text)
    found = run("validate", points_file, "--json").data["files"]["points.csv"]
    assert list(found["strata"]) == ["labelled", "unlabelled"]
    first, second = found["strata"]["labelled"], found["strata"]["unlabelled"]
    assert (first["tok_s_per_gpu"]["rows"], first["tpot_ms"]["rows"]) == (1, 2)
    assert list(second) == ["tok_s_per_gpu"]
    assert second["tok_s_per_gpu"]["median_abs_error"] == pytest.approx(0.1)
    assert [point["labelled"] for point in found["points"]] == [False, True, True, True]
    lines = [" ".join(line.split()) for line in run("validate", points_file).out.splitlines()]
    assert "unlabelled 1 1 100.0% 10.0% 10.0% +10.0% 100.0%" in lines
    assert "labelled 1 1 100.0% 10.0% 10.0% +10.0% 100.0%" in lines


def test_the_learned_correction_is_said_and_switched_off(run: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "served.csv"
    head = (
        "id,quantity,measured,phase,model,cluster,engine,weights,tp,moe_tp,concurrency,isl,osl,draft_tokens\n"
    )
    rows = [
        f"{name},tpot_ms,9,aggregated,llama-3.1-70b,hgx-h200,trtllm,fp8,8,8,16,1000,200,{drafts}\n"
        for name, drafts in (("told", "no"), ("untold", "unknown"))
    ]
    path.write_text(head + "".join(rows))
    on = run("validate", path, "--json").data["files"]["served.csv"]
    off = run("validate", path, "--no-residual", "--json").data["files"]["served.csv"]
    assert (on["residual"], off["residual"]) == (True, False)
    assert (on["corrected"], off["corrected"]) == (
        on["points"][0]["physics"] != on["points"][0]["predicted"],
        0,
    )
    for found in (on, off):
        for name, point in zip(("labelled", "unlabelled"), found["points"], strict=True):
            (errors,) = found["strata"][name].values()
            assert errors["mean_error"] == pytest.approx(point["predicted"] / 9 - 1)
            assert errors["physics"]["mean_error"] == pytest.approx(point["physics"] / 9 - 1)
    assert [point["physics"] for point in on["points"]] == [point["predicted"] for point in off["points"]]
    assert on["quantities"]["tpot_ms"]["physics"] == off["quantities"]["tpot_ms"]["physics"]
    assert on["quantities"]["tpot_ms"]["mean_error"] != off["quantities"]["tpot_ms"]["mean_error"]
    text = " ".join(run("validate", path).out.split())
    assert "Residual on: 1 figure has the learned correction" in text
    assert "tpot_ms labelled 1 1" in text
    assert "Residual off: the physics alone" in " ".join(run("validate", path, "--no-residual").out.split())


def test_intervals_and_choices_are_reported() -> None:
    def ranged(points: Sequence[Point]) -> list[Prediction]:
        kept = [(50.0, 150.0), (10.0, 20.0), (50.0, 150.0)]
        waits = "waiting dominates: a queue"
        return [
            Prediction(None if low < 20 else 90.0, waits if low < 20 else "", low, high)
            for _, (low, high) in zip(points, kept, strict=True)
        ]

    points = [Point(name, "test", "ttft_ms", 100.0, "alltoall", "hgx-h100") for name in "abc"]
    found = validation("first.csv", points, {"alltoall": ranged})
    errors = found.errors["ttft_ms"]
    assert (errors.intervals, errors.predicted) == (3, 2)
    assert errors.inside_interval == pytest.approx(2 / 3)
    lines = [" ".join(line.split()) for line in text_lines(validate_view([found]).blocks)]
    assert "a 100 90 -10.0% 50 to 150" in lines
    assert "b 100 - - 10 to 20" in lines
    assert "Intervals ttft_ms: 66.7% inside; 3 of 3 rows have an interval" in lines
    assert "Left out 1: waiting dominates: a queue" in lines


def test_rows_left_to_the_model_say_what_was_chosen(run: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "open.csv"
    row = "open,tok_s_per_gpu,700,decode,deepseek-v3,hgx-h20,best,largest,4000,\n"
    path.write_text(HEADER + row)
    (point,) = run("validate", path, "--json").data["files"]["open.csv"]["points"]
    assert point["predicted"] > 0
    assert "sequences a GPU, the most that fit" in point["chosen"]
    assert (point["low"], point["high"], point["inside"]) == (None, None, None)
    assert "Chosen open: decode TP" in " ".join(run("validate", path).out.split())


def test_without_a_file_the_shipped_points(run: Callable[..., Any], points_file: Path) -> None:
    assert points_file.exists()
    found = run("validate", "--json").data["files"]
    assert set(found) == {path.name for path in shipped_files()}
    published = found["published.csv"]
    counts = published["quantities"]["tok_s_per_gpu"]
    assert counts["predicted"] >= 0.95 * counts["rows"]
    assert all(row["reason"] for row in published["points"] if row["predicted"] is None)


def test_long_files_show_the_rows_that_are_furthest_off() -> None:
    points = [
        Point(
            f"row-{i:03d}-{'x' * 60}",
            "test",
            "dispatch_us",
            100.0,
            "alltoall",
            "hgx-h100",
        )
        for i in range(250)
    ]
    found = validation(
        "long.csv",
        points,
        {"alltoall": lambda chosen: [Prediction(100.0 + i) for i in range(len(chosen))]},
    )
    short, full = (
        "\n".join(text_lines(validate_view([found], show_all=show_all).blocks)) for show_all in (False, True)
    )
    assert "the 20 rows that are furthest off" in short
    assert next(word for word in short.split() if word.startswith("row-")).startswith("row-249")
    assert (short.count("row-"), full.count("row-")) == (20, 250)
    assert max(map(len, full.splitlines())) <= 100


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEADER + ROWS.replace("200,", "fast,", 1), "row 3, column measured: 'fast' must be a number"),
        (HEADER.replace("pair", "piar") + ROWS, "unknown column 'piar'; did you mean pair"),
        ("x,y\n1,2\n", "points.csv: "),
    ],
)
def test_bad_files_end_with_one_line(
    run: Callable[..., Any], points_file: Path, text: str, says: str
) -> None:
    points_file.write_text(text)
    done = run("validate", points_file)
    assert done.code == 2
    assert says in done.error_line


def test_a_missing_file(run: Callable[..., Any]) -> None:
    done = run("validate", "none.csv")
    assert done.code == 2
    assert "none.csv: cannot read it" in done.error_line


def test_files_of_one_name_keep_their_folders(tmp_path: Path) -> None:
    a, b, c = tmp_path / "a" / "p.csv", tmp_path / "b" / "p.csv", tmp_path / "q.csv"
    assert file_names([a, b, c, c]) == [str(a), str(b), str(c), f"{c} (2)"]
