"""Documents of the catalog and of clusters: lists, entries with the origin of each figure, traffic."""

from __future__ import annotations

import pytest

from cost.resolve import model_names
from goldens import require_golden
from helpers import Run
from rackplan.report.catalog import catalog_doc
from rackplan.report.cluster import traffic_doc
from topology import cluster_names, gpu_names
from topology.files.resolve import resolve_cluster
from topology.routes import Router, fair_s, pattern_traffic

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


def test_traffic_reads_as_it_did() -> None:
    cluster = resolve_cluster("gb200-nvl72@144")
    sent, router = pattern_traffic("all-to-all", 144, 1e9), Router(cluster)
    loads = router.loads(sent)
    require_golden("traffic", traffic_doc(cluster, sent, loads, fair_s(router, sent, loads)))


@pytest.mark.parametrize("what", LISTS)
def test_lists(run: Run, what: str) -> None:
    assert [row["name"] for row in run("catalog", what, "--json").data[what]] == list(LISTS[what])
    text = run("catalog", what).out
    assert max(len(line) for line in text.splitlines()) <= 100
    assert all(f" {name} " in text for name in LISTS[what])


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_holds_against_the_schema(run: Run, name: str) -> None:
    data = run("catalog", name, "--json").data
    assert data["name"] == name
    for figure in data.get("figures", []):
        assert all(figure[key] for key in ("part", "unit", "evidence", "source"))
