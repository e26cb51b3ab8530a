"""What the network between domains is made of."""

from __future__ import annotations

import pytest

from cost.money.network import count_parts, network_parts, transceiver_power
from topology import Evidence, resolve_cluster


def test_parts_by_hand() -> None:
    # two hosts on a rail fabric: a leaf for each of 8 rails, 4 spine planes of the reference unit
    cluster = resolve_cluster("hgx-h100@16")
    parts = network_parts(cluster)
    assert [part.name for part in parts] == ["switch between domains", "transceiver of ib-ndr400"]
    graph = cluster.graph
    switches = [node for node, data in graph.nodes(data=True) if data["kind"] in ("leaf", "spine")]
    links = sum(data["count"] for a, b, data in graph.edges(data=True) if data["fabric"] == "ib-ndr400")
    assert count_parts(cluster, parts) == ([len(switches), 2 * links], "")
    assert count_parts(cluster, []) == ([], "")


def test_a_spine_plane_counts_as_its_switches() -> None:
    cluster = resolve_cluster("hgx-h100@4096")
    assert count_parts(cluster, network_parts(cluster)) == ([128 + 128 + 64, 2 * 3 * 4096], "")


def test_a_spine_plane_of_switches_with_unknown_ports_says_so() -> None:
    cluster = resolve_cluster("hgx-h20@1024")  # 200 Gb/s
    (switches, _), said = count_parts(cluster, network_parts(cluster))
    links = sum(data["count"] for a, b, data in cluster.graph.edges(data=True) if "f.s0" in (a, b))
    assert switches == 4 * 8 + 4
    assert f"a spine plane of {links} links counts as one switch" in said


def test_transceivers_have_the_power_of_their_rate_alone() -> None:
    power = transceiver_power(50e9)
    assert power is not None
    assert (power.value, power.kind) == (9, Evidence.DATASHEET)
    assert transceiver_power(100e9) is None
    assert transceiver_power(0.0) is None


@pytest.mark.parametrize("name", ["cm384", "hgx-h100"])
def test_one_domain_or_several(name: str) -> None:
    cluster = resolve_cluster(name)
    assert bool(network_parts(cluster)) == (cluster.spec.scale_out is not None)
