"""``rackplan size``: what it prints, its JSON, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
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
    assert data["domains"] == data["units"] + 2 == data["racks"]
    assert data["gpus"] == 8 * data["domains"]
    assert data["tok_s_per_gpu"] == pytest.approx(data["tok_s"] / (8 * data["units"]))
    assert data["tok_s_per_user"] >= 20
    assert data["usd_per_year"] == pytest.approx(8760 * data["usd_per_hour"])
    assert data["usd_per_million_tokens"] == pytest.approx(data["usd_per_hour"] / 3600)
    assert data["usd_per_million_tokens_full"] < data["usd_per_million_tokens"] / 2 * 1.2
    assert data["price_basis"] == "rental"
    assert data["missing"] == []
    assert data["next"]["enough_at_tpot_s"] is None  # 50 ms are no limit here: the largest batch is faster
    assert data["next"]["domains"] == data["domains"] - 1
    assert data["pools"][0]["role"] == "decode"
    assert data["layout"] == data["pools"][0]["layout"]


def test_pools_of_both_phases(run: Run) -> None:
    data = run(*SMALL, "--tok-s", "100k", "--isl", "2000", "--osl", "300", "--json").data
    assert {pool["role"] for pool in data["pools"]} == {"prefill", "decode"}
    assert data["requests_per_s"] == pytest.approx(data["tok_s"] / 300)
    assert data["ttft_s"] <= data["asked"]["ttft_s"] == 2.0
    out = run(*SMALL, "--tok-s", "100k", "--isl", "2000", "--osl", "300", "--ttft-ms", "none").out
    assert "none on the time to the first token" in " ".join(out.split())


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
        (("--tok-s", "1M", "--isl", "5", "--context", "5"), "--isl is of both phases"),
    ],
    ids=lambda value: " ".join(value[1:] if isinstance(value, tuple) else ()),
)
def test_what_is_refused(run: Run, asked: tuple[str, ...], words: str) -> None:
    refused = run(*SMALL, *asked)
    assert refused.code == 2
    assert words in refused.error_line
