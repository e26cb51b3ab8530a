"""Documents of the catalog: lists, and entries with the origin of each figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cost.resolve import model_names
from goldens import require_golden
from rackplan.report.catalog import catalog_doc
from rackplan.report.schema import schema_of
from schema_check import unlike
from topology import cluster_names, gpu_names

NAMES = {"gpus": gpu_names(), "clusters": cluster_names(), "models": model_names()}


def test_an_entry_reads_as_it_did() -> None:
    require_golden("catalog", catalog_doc("hgx-h100"))
    require_golden("catalog_model", catalog_doc("mixtral-8x7b"))


@pytest.mark.parametrize("what", sorted(NAMES))
def test_lists(run: Callable[..., Any], what: str) -> None:
    result = run("catalog", what, "--json")
    assert (result.code, result.err) == (0, "")
    assert [row["name"] for row in result.data[what]] == list(NAMES[what])
    text = run("catalog", what).out
    assert max(len(line) for line in text.splitlines()) <= 100
    assert all(f" {name} " in text for name in NAMES[what])


@pytest.mark.parametrize(
    "name",
    [
        None,
        "gb200-nvl72@144",
        "rubin-ultra-nvl144",
        *cluster_names()[::7],
        *gpu_names()[::7],
        *model_names()[::9],
    ],
)
def test_every_entry_holds_against_the_schema(name: str | None) -> None:
    doc = catalog_doc(name)
    assert list(unlike(schema_of(doc.shape, "catalog", ""), doc.data)) == []
    assert doc.data.get("name", name) == name
    for figure in doc.data.get("figures", []):
        assert figure["part"]
        assert figure["unit"]
        assert figure["evidence"]
        assert figure["source"]


def test_unknown_entries_offer_the_nearest(run: Callable[..., Any]) -> None:
    result = run("catalog", "gb200-nvl27", "--json")
    assert result.code == 2
    assert "gb200-nvl72" in result.error_line
