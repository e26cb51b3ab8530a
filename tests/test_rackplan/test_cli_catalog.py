"""``rackplan catalog``: every list and entry, as tables and as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cost.resolve import model_names
from topology import cluster_names, gpu_names

Run = Callable[..., Any]

NAMES = {"gpus": gpu_names(), "clusters": cluster_names(), "models": model_names()}


@pytest.mark.parametrize("what", sorted(NAMES))
def test_lists(run: Run, what: str) -> None:
    result = run("catalog", what, "--json")
    assert (result.code, result.err) == (0, "")
    assert set(result.data) == {what}
    assert [row["name"] for row in result.data[what]] == list(NAMES[what])
    text = run("catalog", what).out
    assert max(len(line) for line in text.splitlines()) <= 100
    assert all(name in text for name in NAMES[what])


@pytest.mark.parametrize("name", [*cluster_names()[::5], *gpu_names()[::5], *model_names()[::8]])
def test_every_entry(run: Run, name: str) -> None:
    result = run("catalog", name, "--json")
    assert (result.code, result.err) == (0, "")
    assert result.data["name"] == name
    for figure in result.data.get("figures", {}).values():
        assert figure["unit"]
        assert figure["kind"]
        assert figure["source"]
    text = run("catalog", name)
    assert text.code == 0
    assert name in text.out
    assert max(len(line) for line in text.out.splitlines()) <= 100


def test_unknown_entries_offer_the_nearest(run: Run) -> None:
    result = run("catalog", "gb200-nvl27", "--json")
    assert result.code == 2
    assert "gb200-nvl72" in result.error_line
