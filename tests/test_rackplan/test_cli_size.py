"""``rackplan size``: what it prints, its JSON, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cost.serving.units

Run = Callable[..., Any]

SMALL = ("size", "--model", "mixtral-8x7b", "--cluster", "hgx-h100")


@pytest.fixture(autouse=True)
def few_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small clusters are enough here."""
    monkeypatch.setattr(cost.serving.units, "MOST_JOINED_GPUS", 16)
    monkeypatch.setattr(cost.serving.units, "MOST_FLEET_GPUS", 0)


def test_the_data_add_up(run: Run) -> None:
    data = run(*SMALL, "--tok-s", "1M", "--utilization", "0.5", "--spares", "2", "--json").data
    assert data["asked"]["peak_tok_s"] == 2e6
    assert (data["asked"]["tpot_s"], data["asked"]["tpot_default"]) == (0.05, True)
    assert data["tok_s"] >= 2e6 > data["next"]["tok_s"]
    assert data["domains"] == data["units"] + 2
    assert data["racks"] == math.ceil(data["domains"] / 4)
    assert data["gpus"] == 8 * data["domains"]
    assert data["tok_s_per_gpu"] == pytest.approx(data["tok_s"] / (8 * data["units"]))
    assert data["tok_s_per_user"] >= 20
    assert data["usd_per_year"] == pytest.approx(8760 * data["usd_per_hour"])
    assert data["usd_per_million_tokens"] == pytest.approx(data["usd_per_hour"] / 3600)
    assert data["usd_per_million_tokens_full"] < data["usd_per_million_tokens"] / 2 * 1.2
    assert data["price_basis"] == "rental"
    assert data["missing"] == []
    assert data["next"]["enough_at_tpot_s"] > 0.05
    assert data["next"]["domains"] == data["domains"] - 1
    assert data["next"]["requests_per_s"] == pytest.approx(data["next"]["tok_s"] / 1024)
    assert (data["asked"]["currency"], data["asked"]["amount"]) == ("tok_s", 1e6)
    assert data["serving"] == "one pool"
    (pool,) = data["pools"]
    assert (
        pool["gpus"] == pool["workers"] * pool["gpus_per_worker"] == data["serving_gpus"] - data["gpus_idle"]
    )
    assert data["users"] == pytest.approx(
        data["requests_per_s"] * (data["ttft_s"] + 1024 / data["tok_s_per_user"])
    )
    assert data["layout"] == data["pools"][0]["layout"]


def test_pools_of_both_phases(run: Run) -> None:
    asked = ("--tok-s", "100k", "--isl", "8000", "--osl", "300", "--tpot-ms", "20")
    data = run(*SMALL, *asked, "--json").data
    assert data["serving"] == "two pools"
    assert {pool["role"] for pool in data["pools"]} == {"prefill", "decode"}
    assert data["requests_per_s"] == pytest.approx(data["tok_s"] / 300)
    assert data["ttft_s"] <= data["asked"]["ttft_s"] == 2.0
    out = run(*SMALL, *asked, "--ttft-ms", "none").out
    assert "none on the first token" in " ".join(out.split())


def test_the_first_lines_are_the_answer(run: Run) -> None:
    lines = run(*SMALL, "--users", "1k", "--think-s", "10").out.splitlines()
    head = " ".join(" ".join(lines[:14]).split())
    words = (
        "GPUs",
        "hosts a rack",
        "output tok/s",
        "requests/s",
        "concurrent users",
        "20 tok/s/user (default)",
    )
    for word in (*words, "2 s (default)", "USD per million", "USD/h", " MW", "80% of", "GPUs serve"):
        assert word in head
    assert lines[-1].split() == ["More", "--details"]


def test_measured_runs_of_each_pool_are_told(run: Run) -> None:
    asked = ("size", "--model", "llama-3.1-70b", "--cluster", "hgx-h100", "--tok-s", "100k")
    (pool,) = run(*asked, "--json").data["pools"]
    assert pool["measured_runs"] > 0
    words = f"x{pool['measured_factor']:.2f} from {pool['measured_runs']} nearby measured runs"
    assert f"{pool['layout']} ({pool['role']}): {words}" in " ".join(run(*asked).out.split())
    (bare,) = run(*asked, "--physics", "--json").data["pools"]
    assert (bare["measured_factor"], bare["measured_runs"]) == (1, 0)


def test_a_budget_without_its_figure_names_the_option(run: Run) -> None:
    for asked, option in (("--usd-h", "--price h20-sxm=2.50"), ("--mw", "--power h20-sxm=1900")):
        for command in (("size", "--cluster", "hgx-h20"), ("compare", "hgx-h20", "hgx-h100")):
            refused = run(*command, "--model", "mixtral-8x7b", asked, "20")
            assert refused.code == 2
            assert refused.error_line.startswith(f"rackplan: {asked}")
            assert f"set one with {option}" in refused.error_line


def test_several_clusters_are_side_by_side(run: Run) -> None:
    asked = (*SMALL, "--cluster", "hgx-h200@4096", "--usd-h", "50")
    first, second = run(*asked, "--json").data["clusters"]
    alone = run(*SMALL, "--usd-h", "50", "--json").data
    assert first == {name: value for name, value in alone.items() if name != "schema_version"}
    assert second["gpus"] is None
    assert "`usd_h` 50 is too low" in second["missing"][0]
    assert "hgx-h200@4096 --usd-h 50 is too low" in " ".join(run(*asked).out.split())
    none = run(*asked, "--usd-h", "1")
    assert (none.code, none.out) == (3, "")


def test_a_budget_goes_to_the_most_tokens_and_buys_nothing_idle(run: Run, tmp_path: Path) -> None:
    asked = (*SMALL, "--cluster", "gb200-nvl72", "--mw", "0.32")
    few, most = run(*asked, "--json").data["clusters"]
    assert (few["tok_s"] < most["tok_s"], few["gpus"] > most["gpus"]) == (True, True)
    for one in (few, most):
        assert one["next"]["tok_s"] < one["tok_s"]
    text = " ".join(run(*asked, "-o", "page.html").out.split())
    assert "Most output tok/s for the budget: gb200-nvl72" in text
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"At most 0.32 MW: {most['gpus']} GPUs, 2 x gb200-nvl72" in page
    assert "kW all-in; hgx-h100 serves" in page


def test_a_default_that_nothing_keeps_gives_way_and_a_limit_asked_for_does_not(run: Run) -> None:
    slow = ("size", "--model", "llama-3.1-405b", "--cluster", "hgx-h100", "--tok-s", "1k")
    slow += ("--set", "h100-sxm.hbm_bytes_per_s=0.1x")
    out = " ".join(run(*slow).out.split())
    assert "a default limit is left out: --tpot-ms 50 is out of reach" in out
    refused = run(*slow, "--tpot-ms", "50")
    assert refused.code == 3
    assert "--tpot-ms 50 is out of reach" in refused.error_line


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("--tok-s", "many"), "like 200e6, 200M or 128k"),
        (("--tok-s", "1M", "--utilization", "60"), "above 0 and at most 1"),
        (("--tok-s", "1M", "--gpus", "8"), "not --tok-s and --gpus;"),
        ((), "one of --req-s, --tok-s, --users, --gpus, --mw, --usd-h"),
        (("--mw", "nan"), "--mw nan: expected a number above 0"),
        (("--users", "0"), "expected a number above 0"),
        (("--usd-h=-1",), "expected a number above 0"),
        (("--req-s", "5", "--context", "4096"), "decode only has no requests"),
        (("--gpus", "8", "--usd-m", "1", "--tpot-ms", "20"), "--usd-m already determines the speed"),
        (("--gpus", "8", "--cluster", "hgx-h1000"), "hgx-h1000"),
    ],
    ids=lambda value: " ".join(value if isinstance(value, tuple) else ()),
)
def test_what_is_refused(run: Run, asked: tuple[str, ...], words: str) -> None:
    refused = run(*SMALL, *asked)
    assert refused.code == 2
    assert words in refused.error_line
