"""The bill of cables: every link of the graph in one row, with the ports that it takes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from topology import resolve_cluster
from topology.cables import cable_rows, cables_csv
from topology.draw import cluster_svg
from topology.exporters import write_topology
from topology.physical import physical_of_whole

RAILS = [
    # 4 hosts: 18 links of each GPU on boards; 32 NICs, and as many uplinks of 8 leaves to 4 spine planes
    ("32 GPUs", "18", "16 switch chips", "32 to 40", "576", "25 GB/s", "on board"),
    ("32 GPUs", "1", "8 leaves", "4", "32", "50 GB/s", "optical"),
    ("8 leaves", "4", "4 spine planes", "8", "32", "50 GB/s", "optical"),
]
RACKS = [
    # two racks: scale-up stays in each; a rack has a leaf for each of 4 rails, 18 hosts on it and 9 spines above
    ("144 GPUs", "18", "36 switch chips", "72", "2,592", "50 GB/s", "copper"),
    ("144 GPUs", "1", "8 leaves", "18", "144", "50 GB/s", "optical"),
    ("8 leaves", "18", "9 spine planes", "16", "144", "50 GB/s", "optical"),
]
MESH = [("8 GPUs", "7", "8 GPUs", "7", "28", "64 GB/s", "on board")]


@pytest.mark.parametrize(
    ("name", "rows"), [("hgx-h100@32", RAILS), ("gb200-nvl72@144", RACKS), ("mi300x", MESH)]
)
def test_cables_by_hand(name: str, rows: list[tuple[str, ...]]) -> None:
    assert [row.texts for row in cable_rows(resolve_cluster(name))] == rows


NAMES = (
    "hgx-a100@64",
    "gb300-nvl72@1152",
    "cm384@1536",
    "tpu-v5p",
    "l40s@48",
    "hgx-h100@16384",
    "hgx-b300@1024",
)


@pytest.mark.parametrize("name", NAMES)
def test_all_rows_are_the_links_of_the_graph(name: str) -> None:
    cluster = resolve_cluster(name)
    rows = cable_rows(cluster)
    links = sum(row.links or 0 for row in rows if row.in_graph)
    assert links == sum(count for _, _, count in cluster.graph.edges(data="count"))
    found = physical_of_whole(cluster)
    for place, count in (("copper", found.copper_links), ("optical", found.optical_links)):
        assert sum(row.links or 0 for row in rows if row.place == place) == count


def test_what_is_broken_is_cabled_and_what_is_not_published_is_empty(tmp_path: Path) -> None:
    broken = {"name": "x", "domains": [{"part": "hgx-h100", "count": 4}], "broken": [{"gpu": "d0.n0.g0"}]}
    assert [row.texts for row in cable_rows(resolve_cluster(broken))] == RAILS
    write_topology(resolve_cluster("rubin-ultra-nvl144"), tmp_path / "cables.csv")
    (row,) = csv.DictReader((tmp_path / "cables.csv").read_text().splitlines())
    assert (row["from"], row["from_count"], row["links"], row["link_bytes_per_s"]) == ("GPU", "144", "", "")
    lines = cables_csv(resolve_cluster("hgx-h100@32")).splitlines()
    assert lines[3] == "leaf,8,4,4,spine plane,4,8,8,32,50000000000,ib-ndr400,optical"


def test_what_is_in_a_host_is_of_its_domain() -> None:
    gpus = [{"id": f"g{n}", "kind": "gpu", "gpu": "l40s", "domain": f"d{n}", "node": f"h{n}"} for n in (0, 1)]
    inside = [{"id": f"{kind}{n}", "kind": kind, "node": f"h{n}"} for n in (0, 1) for kind in ("nic", "pcie")]
    pairs = [
        pair for n in (0, 1) for pair in ((f"g{n}", f"pcie{n}"), (f"nic{n}", f"pcie{n}"), (f"nic{n}", "leaf"))
    ]
    links = [{"between": list(pair), "count": 1, "rate": "25 GB/s", "latency": "1 us"} for pair in pairs]
    leaf = {"id": "leaf", "kind": "leaf"}
    cluster = resolve_cluster({"name": "x", "nodes": [*gpus, *inside, leaf], "links": links})
    assert [(str(row.near), str(row.far), row.place) for row in cable_rows(cluster, 1)] == [
        ("1 GPU", "1 PCIe switch", "on board"),
        ("1 NIC", "1 PCIe switch", "on board"),
        ("1 NIC", "1 leaf", "optical"),
    ]
    svg = cluster_svg(cluster, level="d1").replace("&#160;", " ").replace("\u00a0", " ")
    for words in ("1 NIC", "1 PCIe switch", "1 leaf", "nic1", "pcie1"):
        assert f">{words}<" in svg
