"""Networks for schedulers and simulators: what is written is read back as the same cluster, or refused by name."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import yaml

from topology import InputError, build_cluster, resolve_cluster
from topology.exporters import write_topology
from topology.importers import ImportOptions, import_files
from topology.physical import physical_limits

if TYPE_CHECKING:
    from pathlib import Path

    from topology.cluster import Cluster


def written(cluster: Cluster, folder: Path, form: str) -> Path:
    path = folder / f"net.{form}"
    write_topology(cluster, path, form)
    return path


def of(folder: Path, text: str) -> Cluster:
    path = folder / "mine.yaml"
    path.write_text(text)
    return resolve_cluster(str(path))


def edges(cluster: Cluster, *, counts: bool) -> Counter[tuple[object, ...]]:
    """Every edge by the kinds of its ends, its rate and latency, and how many links it is."""
    graph = cluster.graph
    kind = {node: data["kind"] for node, data in graph.nodes(data=True)}
    kind |= {node: "leaf" for node in kind if kind[node] == "router"}  # told apart by no format
    return Counter(
        (
            *sorted((kind[a], kind[b])),
            round(data["bytes_per_s"]),
            round(data["latency_s"] * 1e12),
            data["count"] if counts else 1,
        )
        for a, b, data in graph.edges(data=True)
    )


TWO_TIERS = "name: x\ndomains:\n- {part: hgx-h100, count: 4}\nfabric: "
TREE = "{kind: fat-tree, nic: 400 Gb/s, nodes_per_leaf: 1, leaves_per_pod: 2, spines: 2}"
GROUPS = "{kind: dragonfly, nic: 400 Gb/s, nodes_per_router: 1, routers_per_group: 2}"
LEAVES = "{kind: leaf-spine, nic: 400 Gb/s, nics_per_gpu: 2, nodes_per_leaf: 2}"
FAULTS = "[{link: [d0.n0.g1, f.p0.l1]}, {link: [d1.n0.g1, d1.s0], factor: 0.6}]"
CLUSTERS = {
    "rails": ("gb200-nvl72@144", "gb200-nvl72"),
    "hosts": ("hgx-h100@32", "hgx-h100"),
    "mesh": ("mi300x@16", "mi300x"),
    "one": ("hgx-h100", "hgx-h100"),
    "leaf-spine": (f"{TWO_TIERS}{LEAVES}", "h100-sxm"),
    "fat-tree": (f"{TWO_TIERS}{TREE}", "h100-sxm"),
    "dragonfly": (f"{TWO_TIERS}{GROUPS}", "h100-sxm"),
    "broken": (f"{TWO_TIERS[:-8]}broken: {FAULTS}", "h100-sxm"),
}  # fmt: skip


@pytest.mark.wide
@pytest.mark.parametrize("form", ["infragraph", "simai"])
@pytest.mark.parametrize("name", CLUSTERS)
def test_what_is_exported_is_imported_as_the_same_graph(tmp_path: Path, name: str, form: str) -> None:
    text, gpu = CLUSTERS[name]
    cluster = of(tmp_path, text) if "\n" in text else resolve_cluster(text)
    imported = import_files([str(written(cluster, tmp_path, form))], ImportOptions(gpu=gpu))
    back = build_cluster(imported.spec)
    # a rate of SimAI's is as many links as the named system's go into it; health is no word of either
    counted = name != "broken" and (form == "infragraph" or gpu != "h100-sxm")
    assert edges(back, counts=counted) == edges(cluster, counts=counted)
    assert [(gpu.domain, gpu.rail) for gpu in back.gpus] == [(gpu.domain, gpu.rail) for gpu in cluster.gpus]
    assert len({gpu.node for gpu in back.gpus}) == len({gpu.node for gpu in cluster.gpus})
    before, after = physical_limits(cluster), physical_limits(back)
    assert (after.racks, after.hosts) == (before.racks, before.hosts)
    if counted:
        assert (after.copper, after.optical) == (before.copper, before.optical)


def test_shared_nics_are_conserved_by_infragraph_and_refused_by_simai(tmp_path: Path) -> None:
    nodes = "".join(f"- {{id: g{i}, kind: gpu, gpu: h100-sxm, node: h{i // 2}}}\n" for i in range(4))
    nodes += "".join(f"- {{id: n{i}, kind: nic, node: h{i}}}\n" for i in range(2)) + "- {id: l, kind: leaf}\n"
    links = "".join(f"- {{between: [g{i}, n{i // 2}], rate: 400 Gb/s}}\n" for i in range(4))
    links += "- {between: [g0, g1], count: 18, fabric: nvlink4}\n- {between: [g2, g3], count: 18, fabric: nvlink4}\n"
    links += "".join(f"- {{between: [n{i}, l], rate: 400 Gb/s}}\n" for i in range(2))
    cluster = of(tmp_path, f"name: x\nnodes:\n{nodes}links:\n{links}")
    back = import_files([str(written(cluster, tmp_path, "infragraph"))], ImportOptions(gpu="h100-sxm"))
    assert edges(build_cluster(back.spec), counts=True) == edges(cluster, counts=True)
    with pytest.raises(InputError, match="n0 is a nic, which SimAI has no node for"):
        written(cluster, tmp_path, "simai")


@pytest.mark.parametrize(
    ("name", "form", "problem"),
    [
        ("tpu-v5p", "simai", "GPUs of a torus pass on"),
        ("rubin-ultra-nvl144", "simai", "is not published"),
        ("rubin-ultra-nvl144", "infragraph", "is not published"),
        ("rubin-ultra-nvl144", "astra-sim", "is not published"),
        ("gb200-nvl72@88", "simai", "domains have 16 and 72 GPUs"),
        ("gb200-nvl72@88", "astra-sim", "domains have 16 and 72 GPUs; .* product of equal dimensions"),
        ("hgx-h100@24", "astra-sim", ""),
        ("hgx-h100@264", "astra-sim", "33 domains do not fill switches of 32 evenly"),
        ("hgx-h100", "slurm-like", "did you mean"),
    ],
)
def test_what_a_format_cannot_say_is_refused(tmp_path: Path, name: str, form: str, problem: str) -> None:
    if not problem:
        written(resolve_cluster(name), tmp_path, form)
        return
    with pytest.raises(InputError, match=problem):
        written(resolve_cluster(name), tmp_path, form)
    assert not list(tmp_path.iterdir())


def network(cluster: Cluster, folder: Path) -> dict[str, list[object]]:
    return dict(yaml.safe_load(written(cluster, folder, "astra-sim").read_text()))


def test_astra_sim_has_a_dimension_for_each_level(tmp_path: Path) -> None:
    assert network(resolve_cluster("gb200-nvl72@576"), tmp_path) == {
        "topology": ["Switch", "Switch"],
        "npus_count": [72, 8],
        "bandwidth": [900.0, 50.0],
        "latency": [500.0, 4000.0],
    }
    fabric = "fabric: {kind: fat-tree, nic: 400 Gb/s, nodes_per_leaf: 2, leaves_per_pod: 2, spines: 4, "
    fabric += "oversubscription: [2, 4]}"
    cluster = of(tmp_path, f"name: x\ndomains:\n- {{part: mi300x, count: 16}}\n{fabric}\n")
    assert network(cluster, tmp_path) == {
        "topology": ["FullyConnected", "Switch", "Switch", "Switch"],
        "npus_count": [8, 2, 2, 4],
        "bandwidth": [64.0, 50.0, 25.0, 6.25],
        "latency": [500.0, 2000.0, 4000.0, 6000.0],
    }
    torus = "{gpu: h100-sxm, structure: torus, shape: [4, 2, 3], wrap: [true, true, WRAP], gpus_per_node: 3, "
    torus += "link: 10 GB/s}"
    rings = network(of(tmp_path, f"name: x\ndomains: [{torus.replace('WRAP', 'true')}]\n"), tmp_path)
    # a ring of two has two links between its GPUs
    assert (rings["topology"], rings["bandwidth"]) == (["Ring"] * 3, [10.0, 20.0, 10.0])
    with pytest.raises(InputError, match="a dimension of 3 GPUs is a line, not a ring"):
        network(of(tmp_path, f"name: x\ndomains: [{torus.replace('WRAP', 'false')}]\n"), tmp_path)


@pytest.mark.parametrize("name", ["dragonfly", "broken"])
def test_astra_sim_refuses_what_is_no_product(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"joins groups of routers|d0\.n0\.g1 to f\.p0\.l1 is broken"):
        network(of(tmp_path, CLUSTERS[name][0]), tmp_path)


@pytest.mark.parametrize(
    ("form", "option"), [("topograph", {}), ("slurm-block", {}), ("slurm-block", {"gpu": "gb200"})]
)
def test_domains_survive_topograph_and_blocks(tmp_path: Path, form: str, option: dict[str, str]) -> None:
    cluster = resolve_cluster("gb200-nvl72@216")
    path = written(cluster, tmp_path, form)
    options = ImportOptions(**{"gpu": "gb200-nvl72", **option})
    if option:
        with pytest.raises(InputError, match="how its domains are cabled"):
            import_files([str(path)], options)
        return
    back = build_cluster(import_files([str(path)], options).spec)
    assert Counter(gpu.domain for gpu in back.gpus) == Counter(gpu.domain for gpu in cluster.gpus)
    assert "18, 36" in path.read_text() or "18,36" in path.read_text()


def test_hosts_alone_have_no_accelerator_domains(tmp_path: Path) -> None:
    text = written(resolve_cluster("hgx-h100@32"), tmp_path, "topograph").read_text()
    assert "accelerator" not in text
    assert yaml.safe_load(text)["blocks"] == [{"switch": "leaf0", "nodes": ["d[0-3].n0"]}] or "d0.n0" in text
