"""Clusters within a budget: whole domains, at least one; of many a part is made, and said to be one."""

from __future__ import annotations

import pytest

from cost.money.budget import clusters_within
from cost.money.prices import PriceBook
from topology import resolve_cluster
from topology.base.errors import MissingFigureError


def test_whole_domains_within_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    unit, book = resolve_cluster("hgx-h100"), PriceBook(prices={"h100-sxm": 2.0})
    (few,), scales = clusters_within(book, [unit], usd_h=50.0)
    assert (few.name, len(few.gpus), scales) == ("hgx-h100@24", 24, {"hgx-h100@24": 1.0})
    assert clusters_within(book, [unit], usd_h=1.0)[0][0].name == "hgx-h100"
    monkeypatch.setattr("cost.money.budget.MAX_JOINED_GPUS", 16)
    (part,), scales = clusters_within(book, [unit], usd_h=50.0)
    assert (part.name, len(part.gpus), scales) == ("hgx-h100@24", 16, {"hgx-h100@24": 1.5})


def test_a_budget_needs_the_figures_that_it_is_of() -> None:
    unit = resolve_cluster("mi350x")
    with pytest.raises(MissingFigureError, match="rental price"):
        clusters_within(PriceBook(), [unit], usd_h=100.0)
