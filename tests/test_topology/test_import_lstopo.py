"""hwloc's XML: GPUs, NICs and PCIe switches, NVLink and xGMI by its matrices, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from topology import InputError
from topology.importers import ImportOptions, import_files
from topology.importers.lstopo import read_lstopo
from topology.importers.registry import kind_of
from topology.importers.source import Source

if TYPE_CHECKING:
    from pathlib import Path

    from topology.importers.found import NodeFound

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">\n'


BMC = '<object type="OSDev" gp_index="99" name="card0" osdev_type="1"/>'


def pci(number: int, inner: str, *, kind: str = "0302 [10de:2330]", speed: float = 63.0) -> str:
    return (
        f'<object type="PCIDev" gp_index="{number}" pci_busid="0000:{number:02x}:00.0" '
        f'pci_type="{kind} [10de:16c1] a1" pci_link_speed="{speed:f}">{inner}</object>'
    )


def gpu(number: int, index: int, model: str = "NVIDIA H100 80GB HBM3", word: str = "nvml") -> str:
    return pci(
        number,
        f'<object type="OSDev" gp_index="{100 + index}" name="{word}{index}" subtype="NVML" osdev_type="1">'
        f'<info name="GPUModel" value="{model}"/></object>',
    )


def nic(number: int, name: str, state: int = 4) -> str:
    return pci(
        number,
        f'<object type="OSDev" gp_index="{200 + number}" name="ib{number}" osdev_type="2"/>'
        f'<object type="OSDev" gp_index="{300 + number}" name="{name}" osdev_type="3">'
        f'<info name="NodeGUID" value="248a:0703"/><info name="Port1State" value="{state}"/></object>',
        kind="0207 [15b3:1021]",
        speed=50.0,
    )


def switch(number: int, inner: str) -> str:
    return (
        f'<object type="Bridge" bridge_type="0-1" bridge_pci="0000:[{number:02x}-ff]">'
        f'<object type="Bridge" gp_index="{number}" bridge_type="1-1" pci_busid="0000:{number:02x}:01.0" '
        f'pci_type="0604 [1000:c030] [0:0] b0" pci_link_speed="63.0">{inner}</object></object>'
    )


def matrix(name: str, ends: list[str], values: list[list[int]]) -> str:
    rows = "".join(f"<u64values>{' '.join(map(str, row))} </u64values>" for row in values)
    return (
        f'<distances2hetero nbobjs="{len(ends)}" kind="25" name="{name}"><indexes>{" ".join(ends)} </indexes>'
        f"{rows}</distances2hetero>"
    )


def host(gpus: int = 2, chips: int = 2, links: int = 9, model: str = "NVIDIA H100 80GB HBM3") -> str:
    """A host of GPUs with a NIC each below a PCIe switch, one package for all, and NVSwitches."""
    slots = "".join(switch(0x80 + i, gpu(16 + i, i, model) + nic(32 + i, f"mlx5_{i}")) for i in range(gpus))
    chip_devices = "".join(pci(64 + i, "", kind="0680 [10de:22a3]") for i in range(chips))
    ends = [f"OSDev:{100 + i}" for i in range(gpus)] + [f"PCIDev:{64 + i}" for i in range(chips)]
    rate = links * 25000
    values = [
        [1000000 if a == b else rate * ((a < gpus) != (b < gpus)) for b in range(len(ends))]
        for a in range(len(ends))
    ]
    return (
        f'{HEAD}<object type="Machine"><object type="Package" os_index="0">{slots}</object>'
        f'<object type="Package" os_index="1">{chip_devices}'
        f"{pci(99, BMC, kind='0300 [1a03:2000]')}"
        f"</object></object>{matrix('NVLinkBandwidth', ends, values)}</topology>"
    )


def read(text: str) -> NodeFound:
    source = Source("n01.xml", text)
    assert kind_of(source) == "lstopo"
    return read_lstopo(source)


def test_nvlink_to_switches_counts_links_by_rate() -> None:
    found = read(host())
    assert found.gpus == ("GPU0", "GPU1")
    assert found.chips == ("switch0", "switch1")
    assert sorted(found.links) == [(f"GPU{a}", f"switch{b}", 9) for a in range(2) for b in range(2)]
    assert found.sm == "90"
    # the BMC's display is no GPU; each NIC is beside the GPU of its PCIe switch
    assert [(one.name, one.near, one.rate) for one in found.nics] == [
        ("mlx5_0", (0,), None),
        ("mlx5_1", (1,), None),
    ]
    assert [figure.value for figure in found.pcie if figure] == [63e9, 63e9]
    assert found.sockets == ("Package 0", "Package 0")


def test_a_mesh_and_its_socket_order() -> None:
    slots = [gpu(20 - i, i, "Tesla V100-SXM2-16GB") for i in range(2)]
    text = (
        f'{HEAD}<object type="Machine"><object type="Package" os_index="0">{slots[0]}</object>'
        f'<object type="Package" os_index="1">{slots[1]}</object></object>'
        '<distances2 type="OSDev" nbobjs="2" kind="25" name="NVLinkBandwidth" indexing="gp">'
        "<indexes>100 101 </indexes><u64values>1000000 50000 50000 1000000 </u64values></distances2></topology>"
    )
    found = read(text)
    assert found.links == (("GPU0", "GPU1", 2),)
    assert found.sockets == ("Package 0", "Package 1")


def test_xgmi_neighbours_are_those_of_one_hop() -> None:
    slots = "".join(gpu(16 + i, i, "AMD Instinct MI250X", "rsmi") for i in range(3))
    ends = [f"OSDev:{100 + i}" for i in range(3)]
    rates = [[1, 200000, 50000], [200000, 1, 50000], [50000, 50000, 1]]
    hops = [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    text = (
        f'{HEAD}<object type="Machine"><object type="Package" os_index="0">{slots}</object></object>'
        f"{matrix('XGMIBandwidth', ends, rates)}{matrix('XGMIHops', ends, hops)}</topology>"
    )
    found = read(text)
    assert (found.link_kind, found.links) == ("xgmi", (("GPU0", "GPU1", 4), ("GPU1", "GPU2", 1)))


def test_without_a_matrix_links_are_the_catalogs_unless_nvml_would_have_seen_them() -> None:
    text = host(model="NVIDIA B200")
    text = text[: text.index("<distances2")] + "</topology>"
    found = read(text)
    assert (found.gpus, found.devices) == ((), 2)
    assert [rate.value for rate in found.pcie if rate] == [63e9] * 2
    plain = read(text.replace("NVIDIA B200", "NVIDIA L40S"))
    assert (plain.gpus, plain.links, plain.link_kind) == (("GPU0", "GPU1"), (), "pcie")


def test_a_port_that_is_down_and_a_slow_slot_are_told() -> None:
    of_gpu1 = '><object type="OSDev" gp_index="101"'
    text = host(3).replace(f'"63.000000"{of_gpu1}', f'"3.9"{of_gpu1}').replace('value="4"', 'value="1"', 1)
    source = Source("n01.xml", text)
    read_lstopo(source)
    assert any("port 1 of mlx5_0 is down" in line for line in source.anomalies)
    assert any("GPU1" in line and "3.9 GB/s" in line for line in source.anomalies)


def test_a_host_becomes_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "n01.xml"
    path.write_text(host(8, 2, 9))
    imported = import_files([str(path)], ImportOptions(gpu="h100-sxm"))
    (domain,) = imported.spec.domains
    assert (domain.gpus, domain.links_per_switch, domain.scale_up_bytes_per_s) == (8, (9, 9), 450e9)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("225000", "225001", "no whole number of links"),
        ("OSDev:101", "OSDev:999", "no object is the OSDev '999'"),
        ("<u64values>1000000 0 225000 225000 </u64values>", "", "is the file cut"),
        ("1000000 0 225000 225000", "1000000 0 225000 200000", "and 225000 back"),
        ("0000:10:00.0", "10:00", "is not a PCI bus id"),
        ("0000:11:00.0", "0000:10:00.0", "duplicate PCI device"),
        ('pci_link_speed="63.000000"', 'pci_link_speed="fast"', "is not a rate in GB/s"),
        ("</topology>", "", "not valid XML"),
        ("<u64values>1000000 0 ", f"<u64values>{' ' * 3000}1000000 0 ", "is too long for 4 objects"),
        ('"hwloc2.dtd"', '"hwloc2.dtd" [<!ENTITY a "b">]', "a document type or entity"),
    ],
)
def test_what_contradicts_itself_is_refused(old: str, new: str, problem: str) -> None:
    text = host()
    assert old in text
    with pytest.raises(InputError, match=problem):
        read_lstopo(Source("n01.xml", text.replace(old, new, 1 if old != "225000" else -1)))


def test_a_host_without_gpus_is_refused() -> None:
    text = f'{HEAD}<object type="Machine"><object type="Package" os_index="0"/></object></topology>'
    with pytest.raises(InputError, match="no GPU among its PCI devices"):
        read(text)
