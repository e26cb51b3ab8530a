"""A cluster as built: which of its domains are of one kind."""

from __future__ import annotations

from topology.files.resolve import cluster_from, resolve_cluster


def test_equal_domains_are_of_one_kind() -> None:
    rows = [{"part": "hgx-h100"}, {"part": "gb200-nvl72"}, {"part": "hgx-h100", "count": 2}]
    fabric = {"kind": "rail", "nic": "400 Gb/s", "nodes_per_pod": 32}
    assert cluster_from({"domains": rows, "fabric": fabric}).domain_kind == (0, 1, 0, 0)
    assert resolve_cluster("gb200-nvl72@200").domain_kind == (0, 0, 1)  # the last is partial
