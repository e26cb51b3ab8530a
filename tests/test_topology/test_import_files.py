"""Whole imports: one file or several to a cluster, what is asked for, and what is read back."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from graph_contract import validate_graph
from topology.base.errors import InputError
from topology.build import build_cluster
from topology.exporters import cluster_to_yaml
from topology.files.cluster_file import read_cluster_file
from topology.importers import Imported, ImportOptions, import_files
from topology.spec import Fault
from toys import topo_m

TREE = "SwitchName=core Switches=leaf[1-2]\nSwitchName=leaf1 Nodes=n[1-3]\nSwitchName=leaf2 Nodes=n[4-6]\n"
BLOCK = "BlockName=b1 Nodes=n[1-3]\nBlockName=b2 Nodes=n[4-6]\nBlockSizes=3\n"


def host(count: int, cell: str, nics: int = 0) -> str:
    """Equal GPUs, NIC i beside GPU i."""
    names = [*(f"GPU{i}" for i in range(count)), *(f"NIC{i}" for i in range(nics))]
    cells = dict.fromkeys(combinations(range(count), 2), cell)
    return topo_m(names, cells | {(i, count + i): "PIX" for i in range(nics)})


EIGHT, FOUR = host(8, "NV18"), host(4, "NV18")
OWN: dict[str, Any] = {"gpu": "a-card", "hbm": "94 GB", "pcie": "64 GB/s", "socket_link": "100 GB/s"}
OWN["fabrics"] = ("nvlink4",)
FULL: dict[str, Any] = {"gpu": "h100-sxm", "nic": "400 Gb/s", "oversubscription": 1.0}


@pytest.fixture
def take(tmp_path: Path) -> Any:
    """Write files (``HOSTS=NAME``: a dump of those hosts), import them, and read the same graph back."""

    def call(files: dict[str, str], **options: Any) -> Imported:
        paths = []
        for key, text in files.items():
            hosts, _, name = key.rpartition("=")
            (tmp_path / name).write_text(text)
            paths.append(f"{hosts}={tmp_path / name}" if hosts else str(tmp_path / name))
        imported = import_files(paths, ImportOptions(**options))
        same_graph(imported, tmp_path / "back.yaml")
        return imported

    return call


def same_graph(imported: Imported, path: Path) -> None:
    path.write_text(cluster_to_yaml(imported.spec, ["a comment"], rates_unusual=imported.rates_unusual))
    first, second = build_cluster(imported.spec), build_cluster(read_cluster_file(path))
    validate_graph(second.graph)
    assert [gpu.id for gpu in first.gpus] == [gpu.id for gpu in second.gpus]
    assert dict(first.graph.nodes(data=True)) == dict(second.graph.nodes(data=True))
    assert {frozenset(edge) for edge in first.graph.edges} == {frozenset(edge) for edge in second.graph.edges}
    for a, b, data in first.graph.edges(data=True):
        other = second.graph.edges[a, b]
        assert data["count"] == other["count"]
        assert data["latency_s"] == other["latency_s"]
        assert data["bytes_per_s"] == pytest.approx(other["bytes_per_s"], rel=1e-12)


def rates(imported: Imported) -> Counter[tuple[str, str, float]]:
    """Edges by the kinds of their ends and their rate."""
    graph = build_cluster(imported.spec).graph
    kinds = dict(graph.nodes(data="kind"))
    return Counter(
        (*sorted((kinds[a], kinds[b])), data["bytes_per_s"] / 1e9) for a, b, data in graph.edges(data=True)
    )


# One host


def test_a_host_is_one_domain_of_switches_or_a_mesh(take: Any) -> None:
    imported = take({"t.txt": EIGHT}, gpu="h100-sxm")
    (domain,) = imported.spec.domains
    assert imported.spec.raw is None
    assert (domain.links_per_switch, domain.scale_up_bytes_per_s) == ((5, 5, 4, 4), 450e9)
    own = {"gpu": "own", "hbm": "80 GB", "fabrics": ("nvlink4",)}
    imported = take({"t.txt": host(4, "NV4")}, **own)
    assert (imported.spec.domains[0].structure, imported.spec.domains[0].gpu.hbm_bytes) == ("mesh", 80e9)
    assert rates(imported) == {("gpu", "gpu", 100.0): 6}
    imported = take({"t.txt": EIGHT}, **own)
    assert rates(imported) == {("gpu", "switch", 450.0): 8}


def test_a_gpu_without_nvlink_keeps_its_place_and_is_broken(take: Any) -> None:
    cells = {pair: "NODE" if 3 in pair else "NV18" for pair in combinations(range(8), 2)}
    text = topo_m([f"GPU{i}" for i in range(8)], cells)
    with pytest.raises(InputError, match="PCIe rate of a GPU: give `pcie`"):
        take({"t.txt": text}, gpu="h100-sxm")
    imported = take({"t.txt": text}, gpu="h100-sxm", pcie="64 GB/s")
    graph = build_cluster(imported.spec).graph
    assert imported.spec.gpus == 8
    assert [fault.gpu for fault in imported.spec.faults] == ["node0.g3"]
    assert {graph.nodes[other]["kind"] for other in graph["node0.g4"]} == {"host", "switch"}
    assert "GPU3 has no scale-up link" in imported.anomalies[0]


# A fabric


def test_blocks_alone_do_not_say_how_they_are_cabled(take: Any) -> None:
    with pytest.raises(InputError, match=r"how its domains are connected: give the fabric's file too"):
        take({"b.conf": BLOCK}, gpu="gb200")
    imported = take({"b.conf": BLOCK}, gpu="gb200-nvl72", nic="800 Gb/s")
    assert imported.spec.scale_out is not None
    assert imported.spec.scale_out.scale_out_bytes_per_s == 100e9


def test_which_hosts_share_a_domain_is_asked_for(take: Any) -> None:
    options: dict[str, Any] = {"gpu": "rubin-576", "nic": "800 Gb/s", "oversubscription": 1.0}
    with pytest.raises(InputError, match="which hosts share a scale-up domain"):
        take({"t.conf": TREE}, **options)
    assert len(take({"t.conf": TREE}, domains="leaf", **options).spec.domains) == 2


def test_hosts_without_gpus_are_left_out_by_name(take: Any) -> None:
    text = TREE.replace("n[4-6]", "n[4-6],cpu[1-2]")
    imported = take({"t.conf": text}, gpu="hgx-h100", hosts="n[1-6]")
    assert imported.spec.gpus == 48
    assert "cpu1, cpu2" in " ".join(imported.anomalies)
    with pytest.raises(InputError, match=r"`hosts`: host n7 is not in t\.conf"):
        take({"t.conf": text}, gpu="hgx-h100", hosts="n[1-7]")


def tree(leaves: int, hosts: int, pods: int = 0) -> str:
    share = leaves // (pods or 1)
    rows = [f"SwitchName=core Switches={f's[0-{pods - 1}]' if pods else f'l[0-{leaves - 1}]'}"]
    rows += [f"SwitchName=s{p} Switches=l[{p * share}-{p * share + share - 1}]" for p in range(pods)]
    return "\n".join(
        [*rows, *(f"SwitchName=l{i} Nodes=n[{hosts * i + 1}-{hosts * i + hosts}]" for i in range(leaves))]
    )


def blocks(hosts: int) -> str:
    return "\n".join(f"BlockName=b{i} Nodes=n[{18 * i + 1}-{18 * i + hosts}]" for i in range(4))


@pytest.mark.parametrize(
    ("text", "gpu", "body"),
    [
        (tree(8, 8), "hgx-h100", "  - {part: hgx-h100, count: 64}\nfabric: {kind: leaf-spine,"),
        (tree(16, 4, 4), "hgx-h100", "  - {part: hgx-h100, count: 64}\nfabric: {kind: fat-tree,"),
        (blocks(18), "gb200-nvl72", "  - {part: gb200-nvl72, count: 4}\n"),
        (blocks(17), "gb200-nvl72", "  - {part: gb200-nvl72, gpus: 68, count: 4}\n"),
    ],
)
def test_regular_files_give_a_few_lines(take: Any, text: str, gpu: str, body: str) -> None:
    written = cluster_to_yaml(take({"t.conf": text}, gpu=gpu).spec)
    assert body in written
    assert len(written.splitlines()) <= 4


def test_leaves_that_nothing_joins_are_asked_for(take: Any) -> None:
    text = TREE.partition("\n")[2]
    with pytest.raises(InputError, match=r"2 separate switches are connected: give .* `join_leaves` RATE"):
        take({"t.conf": text}, gpu="hgx-h100")
    imported = take({"t.conf": text}, gpu="hgx-h100", join_leaves="4.8 Tb/s")
    out = imported.spec.scale_out
    assert out is not None
    assert (out.kind, out.spines, out.oversubscription) == ("leaf-spine", 1, 2.0)


# Several files


def test_dumps_are_of_hosts_by_their_file_names_or_as_given(take: Any) -> None:
    imported = take({"t.conf": TREE, "all.txt": EIGHT, "n5.txt": FOUR}, **FULL)
    assert Counter(domain.gpus for domain in imported.spec.domains) == {8: 5, 4: 1}
    imported = take({"t.conf": TREE, "n[1-3]=a.txt": EIGHT, "n[4-6]=b.txt": FOUR}, **FULL)
    assert [domain.gpus for domain in imported.spec.domains] == [8, 8, 8, 4, 4, 4]
    dumps = {f"N{number}.site.org.txt": EIGHT for number in range(1, 7)}
    imported = take({"t.conf": TREE} | dumps, **FULL)
    assert imported.spec.gpus == 48


def test_what_files_and_options_say_twice_or_in_vain_is_said(take: Any, ib_rails: Any) -> None:
    options = {"gpu": "h100-sxm", "hbm": "94 GB", "pcie": "64 GB/s", "oversubscription": 2.0}
    imported = take({"t.txt": EIGHT}, **options)
    unused = [line.partition(" ")[0] for line in imported.anomalies if ": not needed: " in line]
    assert unused == ["`pcie`", "`oversubscription`", "`hbm`"]
    imported = take({"ib.out": ib_rails(rails=8).text()}, gpu="hgx-h100", nic="100 Gb/s")
    assert rates(imported)["gpu", "leaf", 50.0] == 48
    assert "`nic` 100 Gb/s: ib.out says 400 Gb/s, which is used." in imported.anomalies
    imported = take({"l.csv": "a,b,rate\nn1.g0,leaf,400 GB/s\nn2.g0,leaf,400 GB/s\n"}, gpu="h100-sxm")
    assert imported.rates_unusual
    assert any("Kept as in the file." in line for line in imported.anomalies)


CSV = "a,b,rate\nn1.g0,n1.g1,25 GB/s\n"
UNEVEN = tree(40, 16).replace("Nodes=n[1-16]", "Nodes=n[1-3]").replace("n[33-48]", "n[33-35]")


@pytest.mark.parametrize(
    ("files", "options", "problem"),
    [
        ({"t.txt": EIGHT}, {}, r"t\.txt: it does not say the GPU type .*: give `gpu` NAME"),
        ({"t.txt": EIGHT}, {"gpu": "h10"}, r"`gpu` h10: unknown GPU .h10.; did you mean .*h100-sxm"),
        ({"t.txt": host(8, "NV12")}, {"gpu": "h100-sxm"}, r"have \d+ scale-up links, but h100-sxm has 18"),
        ({"t.conf": TREE}, {}, "(?s)`gpu`.*`gpus_per_node`.*`nic`.*`oversubscription`"),
        ({"t.conf": TREE}, {"gpu": "hgx-h100", "gpus_per_node": 4}, "hgx-h100 has 8 GPUs to a node"),
        ({"t.conf": TREE}, {"gpu": "tpu-v5p"}, "is a torus"),
        ({"t.conf": TREE}, {"gpu": "hgx-h100", "fabrics": ("nvlink9",)}, 'unknown fabric "nvlink9"'),
        ({"t.conf": TREE}, {"gpu": "hgx-h100", "kind": "nccl-xml"}, "t.conf: "),
        ({"t.conf": TREE}, {"gpu": "hgx-h100", "kind": "slrum"}, "`kind` slrum: not one of"),
        ({"b.conf": "BlockName=b1 Nodes=n[1-19]\n"}, {"gpu": "gb200-nvl72"}, "b1 has 19 hosts with 76 GPUs"),
        ({"t.conf": TREE, "u.conf": TREE}, FULL, "both describe switches"),
        ({"t.conf": TREE, "b.conf": BLOCK.replace("n[4-6]", "n[4-5]")}, FULL, r"n6 is not in b\.conf"),
        ({"b.conf": BLOCK, "c.conf": BLOCK.replace("b2", "b3")}, FULL, "both name domains"),
        ({"t.conf": TREE, "n9=a.txt": EIGHT}, FULL, r"n9 is not in t\.conf"),
        ({"t.conf": TREE, "a.txt": EIGHT, "b.txt": FOUR}, FULL, r"b\.txt: it is unclear which hosts"),
        ({"t.conf": TREE, "n1.txt": EIGHT}, FULL, "host n2 has no dump"),
        ({"a.txt": EIGHT, "b.txt": EIGHT}, FULL, "two nodes, but no file shows how"),
        ({"n1=t.conf": TREE, "a.txt": EIGHT}, FULL, "does not describe single hosts"),
        ({"t.txt": host(2, "NV4")}, {"gpu": "v100", "hbm": "80 GB"}, "`fabric`"),
        ({"t.txt": EIGHT}, FULL | {"gpus_per_node": 4}, "node0 has 8 GPUs, but `gpus_per_node` says 4"),
        ({"t.conf": TREE}, OWN | {"gpus_per_node": 4, "nic": "1 Gb/s"}, "the GPUs of a node are connected"),
        ({"l.csv": CSV, "t.conf": TREE}, FULL, r"describes a whole cluster, so t\.conf cannot be added"),
        ({"l.csv": CSV + CSV[9:].replace("n1", "n2")}, OWN, "not all connected: 2 islands"),
        ({"t.conf": TREE, "n1.txt": EIGHT, "n1=a.txt": EIGHT}, FULL, "both describe host n1"),
        ({"t.conf": TREE}, FULL | {"oversubscription": 0.0}, "`oversubscription` 0: must be above 0"),
        ({"t.conf": TREE}, FULL | {"domains": "rack"}, r"`domains` rack: leaf or node\."),
        ({"t.conf": UNEVEN}, {"gpu": "hgx-h100"}, "listed one by one"),
        (
            {"b.conf": BLOCK, "n[1-5]=a.txt": EIGHT, "n6=b.txt": FOUR},
            {"gpu": "hgx-h100"},
            "names no switches",
        ),
        ({"t.conf": "SwitchName=s Nodes=n[1-20000]\n"}, {"gpu": "hgx-h100"}, "160,000 GPUs; at most 131,072"),
        ({"t.conf": TREE}, FULL | {"oversubscription": 1e-9}, r"are connected by \S+ links; the maximum is"),
    ],
)
def test_what_is_missing_or_cannot_be_is_refused(
    take: Any, files: dict[str, str], options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        take(files, **options)


# ibnetdiscover


def test_domains_of_a_rack_scale_system_are_its_leaf_sets(take: Any, ib_rails: Any) -> None:
    imported = take({"ib.out": ib_rails(pods=2, hosts=3, spines=3).text()}, gpu="gb200")
    assert [domain.gpus for domain in imported.spec.domains] == [12, 12]


def test_a_missing_cable_leaves_that_gpu_without_a_nic(take: Any, ib_rails: Any) -> None:
    fabric = ib_rails(pods=2, hosts=3, rails=8)
    fabric.cables = [cable for cable in fabric.cables if cable[2] != "p0h1r5"]
    imported = take({"ib.out": fabric.text()}, gpu="h100-sxm")
    assert imported.spec.faults == (Fault(link=("d1.n0.g5", "f.p0.l5")),)
    assert imported.hosts[1] == "node-01"


def test_hosts_without_a_name_join_the_domain_of_their_leaves(take: Any, ib_rails: Any) -> None:
    fabric = ib_rails(pods=2, hosts=3)
    for rail in range(4):
        fabric.adapters[f"p0h1r{rail}"] = "MT4129 ConnectX7   Mellanox Technologies"
    blocks = "BlockName=b0 Nodes=node-[00-02]\nBlockName=b1 Nodes=node-[10-12]\n"
    imported = take({"ib.out": fabric.text(), "b.conf": blocks}, gpu="gb200")
    assert imported.domains["b0"] == ["node-00", "node-02", "unnamed-pod0-port2"]


# Fabrics that nothing joins but hosts


def with_storage(fabric: Any, nics: int = 2) -> str:
    """The fabric with another one beside it, to two storage servers and ``nics`` more NICs of each host."""
    hosts = sorted({text.split()[0] for text in fabric.adapters.values()})
    fabric.adapters = {
        key: f"{text.split()[0]} mlx5_{key.rpartition('r')[2]}" for key, text in fabric.adapters.items()
    }
    fabric.switches += ["store-0", "store-1", "store-top"]
    for leaf in range(2):
        fabric.cables.append((f"store-{leaf}", 64, "store-top", leaf + 1, "4xHDR"))
    for place, (name, count) in enumerate([*((name, nics) for name in hosts), ("nas1", 2), ("nas2", 2)]):
        for nic in range(count):
            fabric.adapters[f"s{name}{nic}"] = f"{name} mlx5_{20 + nic}"
            fabric.cables.append((f"store-{nic % 2}", 1 + place, f"s{name}{nic}", 1, "4xHDR"))
    return str(fabric.text())


def test_a_fabric_with_fewer_nics_than_gpus_beside_one_with_enough_is_assumed_to_be_storage(
    take: Any, ib_rails: Any
) -> None:
    imported = take({"ib.out": with_storage(ib_rails(rails=8))}, gpu="hgx-h100")
    alone = take({"ib.out": ib_rails(rails=8).text()}, gpu="hgx-h100")
    assert imported.spec.scale_out is not None
    assert (imported.spec.gpus, imported.spec.scale_out.kind) == (48, "rail")
    assert rates(imported) == rates(alone)
    assert any("store-0, store-1, store-top" in line for line in imported.anomalies)
    assert ("unused", "ib.out: nas1, nas2: on these switches alone; left out.") in imported.remarks


def test_planes_that_only_hosts_join_are_read_as_they_are(take: Any, ib_rails: Any) -> None:
    fabric = ib_rails(pods=2, hosts=3, rails=8, spines=8)
    fabric.cables = [
        cable for cable in fabric.cables if "spine" not in cable[2] or cable[0][-1] == cable[2][-1]
    ]
    imported = take({"ib.out": fabric.text()}, gpu="hgx-h100")
    graph = build_cluster(imported.spec).graph
    for host in ("node-00", "node-12"):
        leaves = [other for other in graph[f"{host}.g5"] if graph.nodes[other]["kind"] == "leaf"]
        assert leaves == [f"leaf-{host[5]}-5"]
    assert set(graph["leaf-0-5"]) & set(graph["leaf-1-5"]) == {"spine-5"}
    assert not set(graph["leaf-0-5"]) & set(graph["leaf-1-6"])


def test_a_fabric_of_a_table_that_no_gpu_reaches_is_left_out(take: Any) -> None:
    rows = [f"n{h}.g{g},n{h}.s0,18,25 GB/s" for h in range(4) for g in range(2)]
    rows += [f"n{h}.g{g},leaf{h // 2},1,400 Gb/s" for h in range(4) for g in range(2)]
    rows += [f"leaf{pod},spine0,4,400 Gb/s" for pod in range(2)]
    alone = take({"l.csv": "a,b,count,rate\n" + "\n".join(rows)}, gpu="h100-sxm")
    rows += [f"n{h}.nic8,store,1,200 Gb/s" for h in range(4)]
    imported = take({"l.csv": "a,b,count,rate\n" + "\n".join(rows)}, gpu="h100-sxm")
    assert imported.spec == alone.spec
    assert imported.spec.raw is None
    assert "n3.nic8, store" in imported.anomalies[0]


# Groups in a host


def pairs(cell: str, nics: int = 0) -> str:
    """Eight PCIe GPUs on two sockets, bridges over pairs, ``nics`` NICs on one PCIe switch a socket."""
    names = [*(f"GPU{i}" for i in range(8)), *(f"NIC{i}" for i in range(nics))]
    cells = {
        (a, b): cell if a // 2 == b // 2 else "NODE" if a // 4 == b // 4 else "SYS"
        for a, b in combinations(range(8), 2)
    }
    cells |= {(a, 8 + nic): "PXB" if a // 4 == nic else "SYS" for a in range(8) for nic in range(nics)}
    return topo_m(names, cells | {(8, 9): "SYS"})


def test_pairs_have_the_links_of_the_catalog_or_are_refused(take: Any) -> None:
    pcie: dict[str, Any] = {"pcie": "31.5 GB/s", "socket_link": "40 GB/s"}
    imported = take({"t.txt": pairs("NV12")}, gpu="h100-nvl", **pcie)
    assert rates(imported) == {
        ("gpu", "gpu", 300.0): 4,
        ("gpu", "host", 31.5): 8,
        ("host", "host", 40.0): 1,
    }
    assert len(imported.anomalies) == 1, "the groups, and nothing of the rates"
    for cell, gpu, words in (
        ("NV18", "h100-nvl", "have 18 scale-up links, but h100-nvl has 12"),
        ("NV12", "h100-sxm", "have 12 scale-up links, but h100-sxm has 18 .* custom name with `hbm`"),
        ("NV12", "a100-pcie", "rate of a scale-up link: give `fabric` NAME"),
    ):
        with pytest.raises(InputError, match=words):
            take({"t.txt": pairs(cell)}, gpu=gpu, **pcie)
    edges = rates(take({"t.txt": pairs("NV12", nics=2), "t.conf": TREE}, **FULL | OWN))
    assert edges["gpu", "gpu", 300.0] == 24
    assert (edges["gpu", "pcie", 64.0], edges["leaf", "nic", 50.0]) == (48, 12)
    assert edges["host", "pcie", 64.0] == 12, "a switch on each socket"


def with_legend(text: str, *names: str) -> str:
    """The dump with the names of its NICs."""
    legend = "".join(f"  NIC{number}: {name}\n" for number, name in enumerate(names))
    return f"{text}\nNIC Legend:\n\n{legend}"


def test_nics_of_a_dump_and_of_the_fabric_are_compared(take: Any, ib_rails: Any) -> None:
    fabric = ib_rails(pods=1, hosts=2, rails=2)
    fabric.adapters = {key: value.replace("HCA-", "mlx5_") for key, value in fabric.adapters.items()}
    text = fabric.text()  # mlx5_1 and mlx5_2 of each host

    def with_nics(*names: str) -> Imported:
        dump = with_legend(host(2, "NV18", nics=len(names)), *names)
        return take({"ib.out": text, "node.txt": dump}, gpu="h100-sxm")

    with pytest.raises(InputError, match=r"NIC mlx5_2 of node-00 is cabled, but node\.txt lists only mlx5_1"):
        with_nics("mlx5_1", "x")
    with pytest.raises(InputError, match=r"node-00 has 2 cabled NICs, but node\.txt lists 1\."):
        with_nics("x")
    assert any("NIC to port: in order" in line for line in with_nics("x0", "x1").assumptions)
    dump = with_legend(topo_m(["GPU0", "GPU1", *(f"NIC{i}" for i in range(3))], {
        (0, 1): "NV18", (0, 2): "PIX", (1, 3): "PIX", (1, 4): "PIX"}), "mlx5_1", "mlx5_2", "x")  # fmt: skip
    imported = take({"ib.out": text, "node.txt": dump}, gpu="h100-sxm")
    assert any("node-00: x next to a GPU, but ib.out shows no cable." in line for line in imported.anomalies)


# The real dumps beside the repository, where they are


DUMPS = Path(__file__).parents[3] / "shared" / "data" / "topology_dumps"
TREE_SAMPLE, HGX = "slurm_topology_tree_topograph.conf", "nccl_topo_hgx_h100_oci_baremetal.xml"
here = pytest.mark.skipif(not DUMPS.is_dir(), reason="the collection of real dumps is not here")


def sample(*names: str, **options: Any) -> Imported:
    return import_files([str(DUMPS / name) for name in names], ImportOptions(**options))


READ = [
    (("topo_m_ml_engineering_nv2_pair.txt",), {"gpu": "own", "hbm": "48 GB", "fabrics": ("nvlink4",)}, 2),
    ((HGX,), {"gpu": "h100-sxm"}, 8),
    (("slurm_topology_block_topograph.conf",), {"gpu": "gb200-nvl72"}, 384),
    ((TREE_SAMPLE, "slurm_topology_block_topograph.conf"), {"gpu": "gb200-nvl72"}, 384),
    ((TREE_SAMPLE, HGX), {"gpu": "h100-sxm", "oversubscription": 1.0}, 768),
]


@here
@pytest.mark.parametrize(("names", "options", "gpus"), READ, ids=["+".join(row[0]) for row in READ])
def test_is_read_and_read_back(
    tmp_path: Path, names: tuple[str, ...], options: dict[str, Any], gpus: int
) -> None:
    imported = sample(*names, **options)
    assert imported.spec.gpus == gpus
    path = tmp_path / "c.yaml"
    path.write_text(cluster_to_yaml(imported.spec, rates_unusual=imported.rates_unusual))
    assert read_cluster_file(path).gpus == gpus


@here
def test_eight_racks_of_gb200(tmp_path: Path) -> None:
    """Counts as parsed by hand from the file: 31 leaves, 9 spines, 532 uplinks, a swap on rack 8."""
    imported = sample("ibnetdiscover_topograph_example.out", gpu="gb200")
    raw = imported.spec.raw
    assert raw is not None
    kinds = Counter(node.kind for node in raw.nodes)
    assert (kinds["leaf"], kinds["spine"]) == (31, 9)
    kind = {node.id: node.kind for node in raw.nodes}
    uplinks = [link for link in raw.links if {kind[end] for end in link.between} == {"leaf", "spine"}]
    assert sum(link.count for link in uplinks) == 532
    assert len(imported.spec.domains) == 8
    assert all(domain.gpus <= 72 for domain in imported.spec.domains)
    swaps = [line for line in imported.anomalies if "a leaf of rail" in line]
    assert len(swaps) == 2
    path = tmp_path / "c.yaml"
    path.write_text(cluster_to_yaml(imported.spec))
    assert read_cluster_file(path).gpus == imported.spec.gpus
