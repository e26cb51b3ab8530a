"""The real dumps beside the repository, where they are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from topology.base.errors import InputError
from topology.exporters import cluster_to_yaml
from topology.files.cluster_file import read_cluster_file
from topology.importers import Imported, ImportOptions, import_files

DUMPS = Path(__file__).parents[3] / "shared" / "data" / "topology_dumps"
TREE, HGX = "slurm_topology_tree_topograph.conf", "nccl_topo_hgx_h100_oci_baremetal.xml"
pytestmark = pytest.mark.skipif(not DUMPS.is_dir(), reason="the collection of real dumps is not here")


def take(*names: str, **options: Any) -> Imported:
    return import_files([str(DUMPS / name) for name in names], ImportOptions(**options))


READ = [
    (("topo_m_ml_engineering_nv2_pair.txt",), {"gpu": "own", "hbm": "48 GB", "fabrics": ("nvlink4",)}, 2),
    (("nccl_topo_hgx_h100_oci_baremetal.xml",), {"gpu": "h100-sxm"}, 8),
    (("nccl_topo_azure_ndv5_h100_vm_static.xml",), {"gpu": "h100-sxm"}, 8),
    (("nccl_topo_vr200_mlopart_fragment.xml",), {"gpu": "rubin", "fabrics": ("nvlink6",)}, 1),
    (("slurm_topology_tree_topograph.conf",), {"gpu": "hgx-h100"}, 768),
    (("slurm_topology_block_topograph.conf",), {"gpu": "gb200-nvl72"}, 384),
    (
        ("slurm_topology_tree_topograph.conf", "slurm_topology_block_topograph.conf"),
        {"gpu": "gb200-nvl72"},
        384,
    ),
    (("slurm_topology_example.yaml",), {"gpu": "hgx-h100"}, 32),
    (("topograph_model_nvl72.yaml",), {"gpu": "gb200-nvl72"}, 288),
    ((TREE, HGX), {"gpu": "h100-sxm", "oversubscription": 1.0}, 768),
]


@pytest.mark.parametrize(("names", "options", "gpus"), READ, ids=["+".join(row[0]) for row in READ])
def test_is_read_and_read_back(
    tmp_path: Path, names: tuple[str, ...], options: dict[str, Any], gpus: int
) -> None:
    imported = take(*names, **options)
    assert imported.spec.gpus == gpus
    path = tmp_path / "c.yaml"
    path.write_text(cluster_to_yaml(imported.spec, rates_unusual=imported.rates_unusual))
    assert read_cluster_file(path).gpus == gpus


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        (
            "topo_m_dgx_h100_12nic_truncated.txt",
            {"gpu": "h100-sxm"},
            r"line 15: .* NIC6 to NIC11, without rows",
        ),
        ("topo_m_epyc_4gpu_5nic_flat.txt", {"gpu": "l40s", "hbm": "48 GB"}, "PCIe rate of a GPU"),
        ("nccl_graph_azure_ncv4.xml", {}, "line 1: is an NCCL graph"),
        ("astra_network_ring_fc_switch.yml", {}, "none of the supported kinds"),
    ],
)
def test_is_refused(name: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        take(name, **options)


def test_eight_racks_of_gb200(tmp_path: Path) -> None:
    """Counts as parsed by hand from the file: 31 leaves, 9 spines, 532 uplinks, a swap on rack 8."""
    imported = take("ibnetdiscover_topograph_example.out", gpu="gb200")
    raw = imported.spec.raw
    assert raw is not None
    kinds = Counter(node.kind for node in raw.nodes)
    assert (kinds["leaf"], kinds["spine"]) == (31, 9)
    kind = {node.id: node.kind for node in raw.nodes}
    assert (
        sum(link.count for link in raw.links if {kind[end] for end in link.between} == {"leaf", "spine"})
        == 532
    )
    assert len(imported.spec.domains) == 8
    assert all(domain.gpus <= 72 for domain in imported.spec.domains)
    swaps = [line for line in imported.anomalies if "a leaf of rail" in line]
    assert len(swaps) == 2
    assert all("b08-p1-dgx-08-c01" in line for line in swaps)
    assert any("69 adapters do not name their host" in line for line in imported.anomalies)
    path = tmp_path / "c.yaml"
    path.write_text(cluster_to_yaml(imported.spec))
    assert read_cluster_file(path).gpus == imported.spec.gpus
