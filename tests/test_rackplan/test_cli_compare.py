"""``rackplan compare``: rows of the contract, sides of one size or of several, unreachable speeds."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rackplan

Run = Callable[..., Any]

MIXTRAL = ("--model", "mixtral-8x7b")
ROW = {"cluster", "model", "tok_s_per_user", "tok_s_per_gpu", "step_s", "batch", "bound_by"}


def test_json_has_a_row_per_cluster(run: Run, tmp_path: Path) -> None:
    result = run("compare", "hgx-h100", "hgx-h200", *MIXTRAL, "--json", "-o", "out")
    assert (result.code, result.err) == (0, "")
    rows = result.data["rows"]
    assert [row["cluster"] for row in rows] == ["hgx-h100", "hgx-h200"]
    assert all(set(row) >= ROW and row["model"] == "mixtral-8x7b" for row in rows)
    assert (tmp_path / "out/compare.json").read_text() == result.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["compare.json", "report.html"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("hgx-h100", "--gpus", 12), "hgx-h100@8 or hgx-h100@16"),
        (("hgx-h100", "--tok-s-user", "fast"), "--tok-s-user fast"),
        (("hgx-h100", "--accept-length", 2), "--accept-length 2"),
        (("hgx-h100", "gb200", "H100"), "clusters hgx-h100@72: duplicate"),
    ],
)
def test_bad_input_leaves_nothing(run: Run, args: tuple[object, ...], words: str, tmp_path: Path) -> None:
    result = run("compare", *args, *MIXTRAL, "-o", "out", "--json")
    assert result.code == 2
    assert words in result.error_line
    assert list(tmp_path.iterdir()) == []


def test_different_sizes_are_said(run: Run) -> None:
    result = run("compare", "hgx-h100@16", "hgx-h200@8", *MIXTRAL)
    assert result.code == 0
    note = " ".join(result.out.split("Note", 1)[1].split())
    assert note.startswith("the clusters differ in size (hgx-h100@16 16, hgx-h200@8 8 GPUs)")
    assert "differ" not in run("compare", "hgx-h100@16", "hgx-h200", *MIXTRAL).out
    refused = run("compare", "hgx-h100@16", "hgx-h200@8", *MIXTRAL, "--gpus", 16)
    assert (refused.code, "hgx-h200@8 has 8 GPUs" in refused.error_line) == (2, True)


def test_where_nobody_can_the_rows_still_say_why(run: Run) -> None:
    result = run("compare", "hgx-h100", "--model", "deepseek-v3", "--json")
    assert result.code == 3
    assert result.data["rows"][0]["tok_s_per_gpu"] is None
    assert "HBM capacity binds" in result.data["rows"][0]["reason"]
    assert len(result.err.splitlines()) == 1
    assert "none of the clusters" in result.err


def test_shares_are_of_the_row_and_beside_the_first_cluster(run: Run) -> None:
    data = run("compare", "hgx-h100", "rubin-576@8", *MIXTRAL, "--json").data
    first, second = data["rows"]
    for by, amount in (("per_gpu", first["gpus"]), ("per_mw", first["totals"]["power_w"] / 1e6)):
        assert first[by]["ratio"] == 1
        assert first[by]["tok_s"] == pytest.approx(first["totals"]["tok_s"] / amount)
        assert first[by]["requests_per_s"] == pytest.approx(first["requests_per_s"] / amount)
    assert second["per_gpu"]["ratio"] == pytest.approx(second["tok_s_per_gpu"] / first["tok_s_per_gpu"])
    assert second["per_usd_h"]["ratio"] is None
    assert "no price for rubin" in second["per_usd_h"]["reason"]
    (gain,) = data["gains"]
    assert (gain["from"], gain["to"], gain["gain"]) == (
        "hgx-h100",
        "rubin-576@8",
        pytest.approx(second["per_gpu"]["ratio"]),
    )


def test_equal_power_is_whole_domains_within_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = ("compare", "hgx-h100", "hgx-h200", *MIXTRAL, "--mw", 0.1)
    whole = run(*asked, "--json").data["rows"]
    monkeypatch.setattr("rackplan.inputs.MOST_JOINED", 16)
    for row, other in zip(run(*asked, "--json").data["rows"], whole, strict=True):
        assert row["gpus"] % 8 == 0
        assert row["totals"]["power_w"] <= 1e5 < row["totals"]["power_w"] * (row["gpus"] + 8) / row["gpus"]
        assert row["requests_per_s"] * 1024 == pytest.approx(row["totals"]["tok_s"])
        assert (row["cluster"], row["gpus"]) == (other["cluster"], other["gpus"])
        assert row["tok_s_per_gpu"] == pytest.approx(other["tok_s_per_gpu"], rel=0.1)
    text = run(*asked, "--details").out
    assert text.index("Per MW") < text.index("Per GPU") < text.index("Per USD/h")
    assert re.search(r"Layouts .* to the\s+budget", text, re.DOTALL)
    (row,) = run("compare", "hgx-h100", *MIXTRAL, "--usd-h", 1, "-o", "one.html", "--json").data["rows"]
    assert (row["cluster"], row["gpus"]) == ("hgx-h100", 8)
    page = (tmp_path / "one.html").read_text(encoding="utf-8")
    assert re.search(r"highest throughput per dollar .*; the smallest unit of hgx-h100 takes", page)


def test_a_lead_within_the_band_is_told_from_one_beyond_it() -> None:
    found = rackplan.compare(["mi355x", "gb300-nvl72"], "glm-5", mw=1, tok_s_user=30, isl="12k", osl=800)
    text = " ".join(found.summary().split())
    per_gpu, per_usd = (found.rows[1].tok_s_per_gpu or 0) / (found.rows[0].tok_s_per_gpu or 1), 0.0
    totals = [found.totals(row) for row in found.rows]
    per_usd = per_gpu * (totals[0].usd_per_hour or 0) / totals[0].gpus
    per_usd /= (totals[1].usd_per_hour or 1) / totals[1].gpus
    assert per_gpu > 1.47 > max(per_usd, 1 / per_usd)
    assert (
        "gb300 has fewer than 20 measured runs; the lead per GPU exceeds that; per USD/h it does not" in text
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("hgx-h100", "--mw", 1, "--usd-h", 100), "--usd-h 100: --mw already sets"),
        (("hgx-h100", "--mw", 1, "--gpus", 8), "--mw 1: --gpus already sets"),
        (("hgx-h100", "--mw", 0), "--mw 0"),
        (("rubin-576", "--mw", 1), "no all-in power"),
    ],
)
def test_one_budget_that_can_be_counted(run: Run, args: tuple[object, ...], words: str) -> None:
    result = run("compare", *args, *MIXTRAL)
    assert result.code == 2
    assert words in result.error_line


def test_the_first_lines_are_the_answer(run: Run) -> None:
    asked = ("compare", "hgx-h100", "hgx-h200", *MIXTRAL)
    text = run(*asked).out
    first = "\n".join(text.splitlines()[:12])
    for words in ("Per GPU", "Per MW", "Per USD/h", "Accuracy", " pool", "tok/s/user (default)"):
        assert words in first
    assert "Gains         hgx-h100 to hgx-h200 at 20 tok/s/user, " in text
    assert "Layouts" not in text
    full = run(*asked, "--details").out
    assert "Layouts" in full
    assert max(map(len, full.splitlines())) <= 100
