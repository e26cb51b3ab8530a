"""The report of ``rackplan compare``: its figures are those of the rows; who cannot is said first."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

CHART = re.compile(r'id="chart-(\w+)".*?<script type="application/json">(.*?)</script>', re.DOTALL)
CLUSTERS = ("hgx-h100", "hgx-h200")


@pytest.fixture
def written(run: Run, tmp_path: Path) -> tuple[list[dict[str, Any]], str]:
    speeds = ("--tok-s-user", "25,1000000")
    assert (
        run("compare", *CLUSTERS, "--model", "mixtral-8x7b", "--context", 4096, *speeds, "-o", "out").code
        == 0
    )
    rows = json.loads((tmp_path / "out/compare.json").read_text())["rows"]
    return rows, (tmp_path / "out/report.html").read_text(encoding="utf-8")


def test_figures_are_those_of_the_rows(written: tuple[list[dict[str, Any]], str]) -> None:
    rows, text = written
    charts = {name: json.loads(data) for name, data in CHART.findall(text)}
    assert set(charts) == {"frontiers", "steps", "memories"}
    reached = [row for row in rows if row["tok_s_per_gpu"] is not None]
    for place, row in enumerate(reached):
        parts = [bars["x"][place] for bars in charts["steps"]["data"]]
        assert sum(parts) == pytest.approx(row["step_s"] * 1e3)
    for cluster, (line, stars) in zip(
        CLUSTERS, zip(*[iter(charts["frontiers"]["data"])] * 2, strict=True), strict=True
    ):
        assert line["name"] == stars["name"] == cluster
        assert line["x"] == sorted(line["x"])
        assert line["y"] == sorted(line["y"], reverse=True)
        reached = [row for row in rows if row["cluster"] == cluster and row["tok_s_per_gpu"] is not None]
        assert stars["x"] == [row["reached_tok_s_per_user"] for row in reached]
        # no placement beats perfect balance
        for row in reached:
            faster = [
                y for x, y in zip(line["x"], line["y"], strict=True) if x >= row["reached_tok_s_per_user"]
            ]
            assert row["tok_s_per_gpu"] <= 1.1 * max(faster)
    plain = text[: text.rindex("<noscript>")]
    for row in rows:
        figure = "unreachable" if row["tok_s_per_gpu"] is None else f"{row['tok_s_per_gpu']:,.0f}"
        assert f"<td>{row['cluster']}</td>" in plain
        assert f'<td class="figure">{figure}</td>' in plain
    assert "out of reach" in plain
    assert not re.search(r"\b(src=|href=\"[^#])", plain)


def test_a_failed_comparison_leaves_nothing(run: Run, tmp_path: Path) -> None:
    assert run("compare", "hgx-h100", "no-such", "--model", "mixtral-8x7b", "-o", "out").code == 2
    assert list(tmp_path.iterdir()) == []


def test_one_page_or_the_data_alone(run: Run, tmp_path: Path) -> None:
    asked = ("compare", *CLUSTERS, "--model", "mixtral-8x7b", "-o")
    assert run(*asked, "one.html").code == 0
    text = (tmp_path / "one.html").read_text(encoding="utf-8")
    assert re.search(
        r'<p class="forward">[\w-]+ has the highest throughput per GPU at 20 tok/s/user: [\d,]+ output tok/s, ',
        text,
    )
    assert re.search(r'<p class="forward">Per megawatt [\w-]+ leads, [\d.]+x [\w-]+; per dollar ', text)
    assert re.search(r"the lead per GPU (does not exceed that, so the order is uncertain|exceeds that)", text)
    assert [path.name for path in tmp_path.iterdir()] == ["one.html"]
    assert "the file suffix sets the format: .json or .html" in run(*asked, "one.pdf").error_line
