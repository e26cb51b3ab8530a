"""``rackplan compare``: its files, sides of one size or of equal power, shares, unreachable speeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import Run

MIXTRAL = ("--model", "mixtral-8x7b")


def test_a_folder_has_the_page_and_the_rows(run: Run, tmp_path: Path) -> None:
    result = run("compare", "hgx-h100", "hgx-h200", *MIXTRAL, "--json", "-o", "out")
    assert (result.code, result.err) == (0, "")
    assert [row["cluster"] for row in result.data["rows"]] == ["hgx-h100", "hgx-h200"]
    assert (tmp_path / "out/compare.json").read_text() == result.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["compare.json", "report.html"]


def test_where_nobody_can_the_rows_still_say_why(run: Run) -> None:
    result = run("compare", "hgx-h100", "--model", "deepseek-v3", "--json")
    assert result.code == 3
    assert result.data["rows"][0]["tok_s_per_gpu"] is None
    assert "HBM capacity binds" in result.data["rows"][0]["reason"]
    assert len(result.err.splitlines()) == 1
    assert "none of the clusters" in result.err


def test_shares_are_of_the_row_and_beside_the_first_cluster(run: Run) -> None:
    data = run("compare", "hgx-h100", "mi350x", *MIXTRAL, "--json").data
    first, second = data["rows"]
    shares = {"gpu": first["gpus"], "mw": first["power_w"] / 1e6, "usd_h": first["usd_per_hour"]}
    for by, amount in shares.items():
        assert first[f"tok_s_per_{by}"] == pytest.approx(first["tok_s"] / amount)
        assert first[f"requests_per_s_per_{by}"] == pytest.approx(first["requests_per_s"] / amount)
    ratio = second["tok_s_per_gpu_ratio"]
    assert ratio == pytest.approx(second["tok_s_per_gpu"] / first["tok_s_per_gpu"])
    assert second["tok_s_per_usd_h_ratio"] is None
    assert any("no rental price" in note["text"] for note in data["notes"] if note["about"] == "usd_per_hour")
    assert all(gain["gain_factor"] == pytest.approx(ratio) for gain in data["gains"])


def test_equal_power_is_whole_domains_within_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("compare", "hgx-h100", "hgx-h200", *MIXTRAL, "--mw", 0.1)
    whole = run(*asked, "--json").data["rows"]
    monkeypatch.setattr("cost.money.budget.MAX_JOINED_GPUS", 16)
    data = run(*asked, "--json").data
    for row, other in zip(data["rows"], whole, strict=True):
        assert row["gpus"] % 8 == 0
        assert row["power_w"] <= 1e5 < row["power_w"] * (row["gpus"] + 8) / row["gpus"]
        assert (row["cluster"], row["gpus"]) == (other["cluster"], other["gpus"])
        assert row["tok_s_per_gpu"] == pytest.approx(other["tok_s_per_gpu"], rel=0.2)
    assert " leads per MW: " in data["answer"][0]
    assert any("to the budget" in note["text"] for note in data["notes"])
    data = run("compare", "hgx-h100", *MIXTRAL, "--usd-h", 1, "--json").data
    assert (data["rows"][0]["cluster"], data["rows"][0]["gpus"]) == ("hgx-h100", 8)
    assert "The smallest unit of hgx-h100 takes" in data["notes"][0]["text"]
