"""Documents of the catalog: lists, and entries with the origin of each figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cost.resolve import model_names
from goldens import require_golden
from rackplan.report.catalog import catalog_doc
from topology import cluster_names, gpu_names

LISTS = {"gpus": gpu_names(), "clusters": cluster_names(), "models": model_names()}
ENTRIES = (
    "gb200-nvl72@144",
    "rubin-ultra-nvl144",
    *cluster_names()[::7],
    *gpu_names()[::7],
    *model_names()[::9],
)


def test_an_entry_reads_as_it_did() -> None:
    require_golden("catalog", catalog_doc("hgx-h100"))
    require_golden("catalog_model", catalog_doc("mixtral-8x7b"))


@pytest.mark.parametrize("what", LISTS)
def test_lists(run: Callable[..., Any], what: str) -> None:
    assert [row["name"] for row in run("catalog", what, "--json").data[what]] == list(LISTS[what])
    text = run("catalog", what).out
    assert max(len(line) for line in text.splitlines()) <= 100
    assert all(f" {name} " in text for name in LISTS[what])


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_holds_against_the_schema(run: Callable[..., Any], name: str) -> None:
    data = run("catalog", name, "--json").data
    assert data["name"] == name
    for figure in data.get("figures", []):
        assert all(figure[key] for key in ("part", "unit", "evidence", "source"))
