"""``rackplan compare``: rows of the contract, equal sides, unreachable speeds."""

from __future__ import annotations

import json
import re
from math import prod
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


def test_speeds_per_user(run: Run) -> None:
    rows = run("compare", "hgx-h100", "hgx-h200", *MIXTRAL, "--tok-s-user", "25,1000000", "--json").data[
        "rows"
    ]
    assert [(row["cluster"], row["tok_s_per_user"]) for row in rows] == [
        ("hgx-h100", 25.0),
        ("hgx-h100", 1e6),
        ("hgx-h200", 25.0),
        ("hgx-h200", 1e6),
    ]
    for row in rows:
        if row["tok_s_per_user"] == 25.0:
            assert row["reached_tok_s_per_user"] >= 25.0 * (1 - 1e-12)
        else:
            assert (row["tok_s_per_gpu"], row["step_s"], row["bound_by"]) == (None, None, None)
            assert "out of reach" in row["reason"]


@pytest.mark.wide
def test_sides_are_filled_to_the_same_size(run: Run) -> None:
    rows = run("compare", "hgx-h100", "gb200-nvl72@16", *MIXTRAL, "--json").data["rows"]
    assert [(row["cluster"], row["gpus"]) for row in rows] == [("hgx-h100@16", 16), ("gb200-nvl72@16", 16)]
    rows = run("compare", "hgx-h100", "gb200-nvl72", *MIXTRAL, "--gpus", 8, "--json").data["rows"]
    assert [row["gpus"] for row in rows] == [8, 8]


@pytest.mark.wide
def test_phase_drafts_overlap_and_engine(run: Run, tmp_path: Path) -> None:
    sides = ("compare", "hgx-h100", "hgx-h200", *MIXTRAL)
    plain = run(*sides, "--batch", 4, "--json").data["rows"]
    asked = ("--draft-tokens", 3, "--accept-length", 4, "--batch", 4)
    drafted = run(*sides, *asked, "--json").data["rows"]
    for before, after in zip(plain, drafted, strict=True):
        assert before["tokens"] == after["tokens"] == "output"
        assert after["step_s"] > before["step_s"]
        assert after["tok_s_per_user"] == pytest.approx(4 / after["step_s"])
    engines = {
        engine: run(*sides, "--batch", 4, "--engine", engine, "--json").data for engine in ("vllm", "trtllm")
    }
    assert engines["vllm"] != engines["trtllm"]
    prefill = run(*sides, "--phase", "prefill", "--overlap", "--engine", "vllm", "-o", "out")
    assert (prefill.code, prefill.err) == (0, "")
    assert "tok/s are input tokens" in prefill.out
    assert "two half batches take turns at computing and sending; fixed delays of vllm" in prefill.out
    assert {row["tokens"] for row in json.loads((tmp_path / "out/compare.json").read_text())["rows"]} == {
        "input"
    }


def test_summary(run: Run) -> None:
    result = run("compare", "hgx-h100", "gb200-nvl72", *MIXTRAL, "--gpus", 24, "--tok-s-user", "25,1000000")
    assert (result.code, result.err) == (0, "")
    assert max(len(line) for line in result.out.splitlines()) <= 100
    for words in ("hgx-h100@24", "1.00x", "unreachable", "out of reach", "output tokens"):
        assert words in result.out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("hgx-h100@16", "hgx-h200@8"), "hgx-h100@16 16, hgx-h200@8 8"),
        (("hgx-h100", "--gpus", 12), "hgx-h100@8 or hgx-h100@16"),
        (("hgx-h100", "no-such"), "no-such"),
        (("hgx-h100", "--tok-s-user", "fast"), "--tok-s-user fast"),
        (("hgx-h100", "--tok-s-user", "25,,50"), "--tok-s-user"),
        (("hgx-h100", "--tok-s-user", "0"), "--tok-s-user 0"),
        (("hgx-h100", "--tok-s-user", "nan"), "--tok-s-user nan"),
        (("hgx-h100", "--loads", "absent.npy"), "absent.npy"),
        (("hgx-h100", "--engine", "nobody"), "--engine nobody"),
        (("hgx-h100", "--accept-length", 2), "--accept-length 2"),
    ],
)
def test_bad_input_leaves_nothing(run: Run, args: tuple[object, ...], words: str, tmp_path: Path) -> None:
    result = run("compare", *args, *MIXTRAL, "-o", "out", "--json")
    assert result.code == 2
    assert words in result.error_line
    assert list(tmp_path.iterdir()) == []


def test_where_nobody_can_the_rows_still_say_why(run: Run) -> None:
    result = run("compare", "hgx-h100", "--model", "deepseek-v3", "--json")
    assert result.code == 3
    assert result.data["rows"][0]["tok_s_per_gpu"] is None
    assert "HBM capacity binds" in result.data["rows"][0]["reason"]
    assert len(result.err.splitlines()) == 1
    assert "none of the clusters" in result.err


def test_a_size_that_a_name_contradicts_is_refused(run: Run, tmp_path: Path) -> None:
    result = run("compare", "hgx-h100@64", "hgx-h200", *MIXTRAL, "--gpus", 72, "-o", "out")
    assert result.code == 2
    assert "--gpus 72: hgx-h100@64 has 64 GPUs" in result.error_line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.wide
def test_machines_that_nobody_can_buy_are_marked(run: Run) -> None:
    sides = ("compare", "gb200-nvl72", "rubin-576", "vr-nvl72", *MIXTRAL, "--gpus", 8)
    assert [row["status"] for row in run(*sides, "--json").data["rows"]] == [
        "shipping",
        "hypothetical",
        "announced",
    ]
    text = run(*sides).out
    assert "rubin-576@8 is hypothetical: nobody has announced such a machine" in text
    assert "vr-nvl72@8 is announced, not shipping" in text
    assert "gb200-nvl72@8 is" not in text
    plan = run("plan", *MIXTRAL, "--cluster", "rubin-576@8", "--time-limit", 0, "-o", "out").out
    assert "rubin-576@8 is hypothetical" in plan


@pytest.mark.wide
def test_a_story_takes_one_cluster_to_the_other(run: Run, tmp_path: Path) -> None:
    told = ("compare", "hgx-h100", "hgx-h200", *MIXTRAL, "--story")
    result = run(*told, "--json", "-o", "out")
    assert result.code == 0
    story, rows = result.data["story"], result.data["rows"]
    assert story["tok_s_per_user"] == 20
    assert [row["cluster"] for row in rows] == [story["from"], story["to"]] == ["hgx-h100", "hgx-h200"]
    assert [one["factor"] for one in story["factors"]] == ["HBM bandwidth", "HBM capacity", "kernels"]
    for order in ("forward", "backward"):
        last = story[order][-1]
        assert last["tok_s_per_gpu"] == rows[1]["tok_s_per_gpu"]
        assert prod(step["gain"] for step in story[order]) == pytest.approx(story["gain"])
    chart = re.search(
        r'id="chart-story".*?<script type="application/json">(.*?)</script>',
        (tmp_path / "out/report.html").read_text(),
        re.DOTALL,
    )
    assert chart is not None
    bars = json.loads(chart[1])["data"]
    assert [bar["y"][-1] for bar in bars] == [rows[1]["tok_s_per_gpu"]] * 2
    # a waterfall ends where the next bar begins
    assert bars[0]["base"][2] == pytest.approx(bars[0]["base"][1] + bars[0]["y"][1])
    text = run(*told).out
    assert "At 20 output tok/s/user hgx-h200 gives" in text
    assert "+ kernels = hgx-h200" in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("hgx-h100", "hgx-h200", "hgx-b200"), "give two, not 3"),
        (("hgx-h100", "hgx-h200", "--tok-s-user", "20,50"), "at one speed"),
        (("hgx-h100", "hgx-h100"), "differ in nothing"),
    ],
)
def test_a_story_has_two_ends_and_one_speed(run: Run, args: tuple[str, ...], words: str) -> None:
    result = run("compare", *args, *MIXTRAL, "--story")
    assert result.code == 2
    assert words in result.error_line


def test_a_story_without_an_end_says_who_cannot(run: Run) -> None:
    result = run("compare", "hgx-h100", "hgx-h200", *MIXTRAL, "--story", "--tok-s-user", 1e6)
    assert result.code == 3
    assert "out of reach on hgx-h100" in result.error_line
