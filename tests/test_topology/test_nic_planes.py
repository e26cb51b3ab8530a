"""NICs with planes: as many networks side by side, cabled, counted, routed, written and drawn as such."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from helpers import link_loads
from topology import InputError, resolve_cluster
from topology.cluster import Cluster
from topology.draw import draw_cluster
from topology.exporters import cluster_to_yaml
from topology.files.cluster_file import read_cluster_file
from topology.physical import physical_of_whole
from topology.routes import pattern_traffic

FABRICS = {
    "rail": "kind: rail, nodes_per_pod: 2, spines: 2",
    "leaf-spine": "kind: leaf-spine, nodes_per_leaf: 2, spines: 2",
    "fat-tree": "kind: fat-tree, nodes_per_leaf: 1, leaves_per_pod: 2, spines: 2",
    "dragonfly": "kind: dragonfly, nodes_per_router: 1, routers_per_group: 2",
}


def read(
    folder: Path, fabric: str, nics: str = "nic: 400 Gb/s, nics_per_gpu: 2, planes: 2", broken: str = "[]"
) -> Cluster:
    path = folder / "c.yaml"
    row = f"fabric: {{{fabric}, {nics}}}\nbroken: {broken}"
    path.write_text(f"name: twin\ndomains: [{{part: hgx-b300, count: 4}}]\n{row}\n")
    return resolve_cluster(str(path))


@pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS)
def test_each_plane_is_the_fabric_with_a_part_of_the_nics(tmp_path: Path, fabric: str) -> None:
    both = read(tmp_path, fabric)
    one = read(tmp_path, fabric, "nic: 400 Gb/s")
    gpus = {gpu.id for gpu in both.gpus}
    outer = [node for node, data in both.graph.nodes(data=True) if data["domain"] is None]
    parts = list(nx.connected_components(both.graph.subgraph(outer)))
    assert len(parts) == 2
    for number, part in enumerate(sorted(parts, key=min)):
        assert all(node.startswith(f"f{number}.") for node in part)
        plane = both.graph.subgraph(part | gpus)
        single = one.graph.subgraph([*gpus, *(f"f{node[2:]}" for node in part)])
        names = {node: f"f{node[2:]}" if node in part else node for node in plane}
        assert nx.utils.graphs_equal(nx.relabel_nodes(plane, names), single)
    assert both.spec.scale_out is not None
    assert both.spec.scale_out.scale_out_bytes_per_s == 100e9


@pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS)
def test_traffic_is_that_of_one_network_twice_as_fast(tmp_path: Path, fabric: str) -> None:
    both, one = read(tmp_path, fabric), read(tmp_path, fabric, "nic: 800 Gb/s")
    rng = np.random.default_rng(1)
    matrix = rng.random((32, 32)) * 1e6
    np.fill_diagonal(matrix, 0.0)
    for sent in (matrix, pattern_traffic("all-to-all", 32, 1e6)):
        twin, single = link_loads(both, sent), link_loads(one, sent)
        assert twin.transfer_s == pytest.approx(single.transfer_s, rel=1e-9)


def test_counted_written_and_drawn(tmp_path: Path) -> None:
    both, one = read(tmp_path, FABRICS["rail"]), read(tmp_path, FABRICS["rail"], "nic: 400 Gb/s")
    assert physical_of_whole(both).optical_links == 2 * physical_of_whole(one).optical_links
    twice = Counter(physical_of_whole(one).switches) + Counter(physical_of_whole(one).switches)
    chips = physical_of_whole(one).switches["switch"]
    assert Counter(physical_of_whole(both).switches) == twice - Counter({"switch": chips})
    text = cluster_to_yaml(both.spec)
    assert "nics_per_gpu: 2, planes: 2" in text
    (tmp_path / "c.yaml").write_text(text)
    assert read_cluster_file(tmp_path / "c.yaml") == both.spec
    draw_cluster(both, tmp_path / "c.svg")
    drawn = (tmp_path / "c.svg").read_text()
    assert "in 2 planes" in drawn
    assert "in 2 separate planes" in drawn
    assert "leaves f0.p0 and f1.p0" in drawn


def test_nics_go_evenly_to_planes(tmp_path: Path) -> None:
    spec = read(tmp_path, FABRICS["rail"], "nic: 400 Gb/s, planes: 2").spec
    assert spec.scale_out is not None
    assert spec.scale_out.nic_links_per_gpu == 2
    for fabric in FABRICS.values():
        for nics, planes in ((3, 2), (1, 2)):
            with pytest.raises(
                InputError, match=f"{nics} NIC links of a GPU do not divide evenly over {planes} planes"
            ):
                read(tmp_path, fabric, f"nic: 400 Gb/s, planes: {planes}, nics_per_gpu: {nics}")
