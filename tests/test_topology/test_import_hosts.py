"""What is read of a host: `nvidia-smi topo -m`, NCCL's and RCCL's XML, `amd-smi` and `rocm-smi`, and its NICs."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import nodes_of_kind, script
from topology import InputError, load_domain
from topology.build import build_cluster
from topology.importers import Imported, ImportOptions, import_files
from topology.importers.found import NodeFound
from topology.importers.importer import parse
from topology.importers.source import Source
from toys import topo_m

seeds = script("tests/properties/readers.py", "reader_seeds")


def node_of(text: str, name: str = "t") -> NodeFound:
    node = parse(Source(name, text), None)
    assert isinstance(node, NodeFound)
    return node


def take(folder: Path, text: str, **options: Any) -> Imported:
    (folder / "node.txt").write_text(text)
    return import_files([str(folder / "node.txt")], ImportOptions(**options))


# nvidia-smi topo -m


def gpus(count: int) -> list[str]:
    return [f"GPU{i}" for i in range(count)]


def pairs(count: int, cell: str) -> dict[tuple[int, int], str]:
    return dict.fromkeys(combinations(range(count), 2), cell)


@pytest.mark.parametrize(
    ("count", "cell", "links_of_gpu", "switched", "noted"),
    [
        (8, "NV18", 18, True, 0),
        (2, "NV18", 18, True, 1),
        (3, "NV12", 12, True, 0),
        (2, "NV12", 12, False, 1),
        (4, "NV6", 18, False, 1),
        (4, "NV4", 12, False, 0),
    ],
)
def test_links_that_no_mesh_can_have_go_to_switches(
    count: int, cell: str, links_of_gpu: int, switched: bool, noted: int
) -> None:
    node = node_of(topo_m(gpus(count), pairs(count, cell)))
    assert set(node.links_of_gpus.values()) == {links_of_gpu}
    assert (node.hidden, len(node.readings)) == (switched, noted)


def test_links_of_some_pairs_are_direct() -> None:
    node = node_of(topo_m(gpus(4), pairs(4, "NV1") | {(0, 1): "NV2", (2, 3): "NV2", (0, 3): "SYS"}))
    assert ("GPU0", "GPU1", 2) in node.links
    assert all({a, b} != {"GPU0", "GPU3"} for a, b, _ in node.links)
    node = node_of(topo_m(gpus(4), {(0, 1): "NV18", (2, 3): "NV18"}))
    assert node.links == (("GPU0", "GPU1", 18), ("GPU2", "GPU3", 18))


@pytest.mark.parametrize(
    ("prompt", "escape", "ends", "tabs"),
    [("", "", "\n", False), ("", "^[", "\n", True), ("$ nvidia-smi topo -m\n", "\x1b", "\r\n", True)],
)
def test_a_paste_with_a_prompt_terminal_codes_or_what_is_left_of_them(
    tmp_path: Path, prompt: str, escape: str, ends: str, tabs: bool
) -> None:
    header, rows = topo_m(gpus(8), pairs(8, "NV18"), tabs=tabs).split("\n", 1)
    path = tmp_path / "topo.txt"
    path.write_text(f"{prompt}\t{escape}[4m{header.lstrip()}{escape}[0m\n{rows}", newline=ends)
    imported = import_files([str(path)], ImportOptions(gpu="hgx-h100"))
    assert imported.files[0].kind == "topo-m"
    assert imported.spec.domains[0].part == "hgx-h100"


# NCCL and RCCL


CHIPS = {"0000:1a:00.0": 4, "0000:1b:00.0": 5, "0000:1c:00.0": 5, "0000:1d:00.0": 4}


SWITCH, GPU, NIC = "0x060400", "0x030200", "0x020700"


def pci(kind: str, inside: str, bus: int, device: int = 0) -> str:
    """A PCI device of 16 lanes; NICs are as fast as their ports."""
    lanes = "" if kind == NIC else 'link_speed="32.0 GT/s PCIe" link_width="16"'
    return f'<pci busid="0000:{bus:02x}:{device:02x}.0" class="{kind}" {lanes}>\n{inside}</pci>\n'


def gpu(number: int, links: dict[str, int] | None = None, *, tag: str = "nvlink") -> str:
    """One GPU below a PCI switch of its own, with a NIC beside it."""
    targets = CHIPS if links is None else links
    inside = "".join(f'<{tag} target="{t}" count="{n}" tclass="0x068000"/>' for t, n in targets.items())
    own = pci(GPU, f'<gpu dev="{number}" sm="90" rank="{number}" gdr="1">{inside}</gpu>', number, 1)
    net = f'<net name="mlx5_{number}" dev="{number}" speed="400000" port="1"/>'
    return pci(SWITCH, own + pci(NIC, f"<nic>{net}</nic>", number, 2), number)


def system(*sockets: str, version: str = "1") -> str:
    rows = (f'<cpu numaid="{number}">\n{text}</cpu>\n' for number, text in enumerate(sockets))
    return f'<system version="{version}">\n{"".join(rows)}</system>\n'


def two_sockets(*gpus: str, version: str = "1") -> str:
    """GPUs on two sockets."""
    half = len(gpus) // 2
    return system("".join(gpus[:half]), "".join(gpus[half:]), version=version)


def test_switch_chips_are_told_apart() -> None:
    node = node_of(two_sockets(*(gpu(i) for i in range(8))))
    assert node.gpus == tuple(f"GPU{i}" for i in range(8))
    assert not node.hidden
    assert len(node.chips) == 4
    assert sorted(count for name, _, count in node.links if name == "GPU3") == [4, 4, 5, 5]
    assert node.sockets == ("0",) * 4 + ("1",) * 4
    assert [(nic.name, nic.near) for nic in node.nics][:2] == [("mlx5_0", (0,)), ("mlx5_1", (1,))]
    assert {nic.rate.value for nic in node.nics if nic.rate} == {50e9}
    assert node.pcie[0] is not None
    assert node.pcie[0].value == pytest.approx(32e9 * 16 / 8 * 128 / 130)
    assert not node.anomalies
    node = node_of(two_sockets(*(gpu(i, {} if i == 5 else None) for i in range(8))))
    assert node.links_of_gpus == {f"GPU{i}": 0 if i == 5 else 18 for i in range(8)}


def test_what_is_one_gpu_and_what_is_a_fragment() -> None:
    die = '<gpu dev="0" sm="107" mlopart="{0}"><nvlink target="fffffff:ff:ff.0" count="36" tclass="0x068000"/></gpu>'
    package = f'<pci busid="0002:81:00.0" class="0x030200">{die.format(0)}{die.format(1)}</pci>'
    node = node_of(system(package))
    assert (node.gpus, node.links) == (("GPU0",), (("GPU0", "switch", 36),))
    slices = gpu(0).replace("</gpu>", '</gpu><gpu dev="1" sm="90"/>')
    node = node_of(system(slices))
    assert node.gpus == ("GPU0",)
    assert "2 ranks on one PCI device (MIG slices" in node.anomalies[0]
    node = node_of('<pci busid="0002:81:00.0" class="0x030200"><gpu dev="0" sm="100"/></pci>')
    assert node.gpus == ("GPU0",)
    assert "a fragment" in node.anomalies[0]


def test_rccl_links_gpus_to_each_other() -> None:
    ids = [f"0000:{i:02x}:01.0" for i in range(4)]
    rows = [gpu(i, {other: 1 for other in ids if other != ids[i]}, tag="xgmi") for i in range(4)]
    node = node_of(two_sockets(*rows, version="2"))
    assert (node.link_kind, len(node.links)) == ("xgmi", 6)
    with pytest.raises(InputError, match="GPU0 lists 2 links to GPU1, but GPU1 lists 1 to GPU0"):
        node_of(two_sockets(gpu(0, {ids[1]: 2}, tag="xgmi"), gpu(1, {ids[0]: 1}, tag="xgmi")))


# amd-smi and rocm-smi


NAMES = [f"0000:{number:02x}:00.0" for number in range(8)]


def table(title: str, other: str, names: list[str]) -> str:
    rows = [[name, *("SELF" if name == column else other for column in names)] for name in names]
    return "\n".join([title, *("  ".join(row) for row in [["", *names], *rows])]) + "\n\n"


AMD_SMI = table("WEIGHT TABLE:", "15", NAMES) + table("LINK TYPE TABLE:", "XGMI", NAMES)


def dump(apart: dict[tuple[int, int], dict[str, object]], names: list[str] = NAMES) -> str:
    """The JSON of a host whose links are direct and enabled but for those given."""

    def link(a: int, b: int) -> dict[str, object]:
        usual = {"gpu": b, "weight": 15, "num_hops": 1, "link_status": "ENABLED", "link_type": "XGMI"}
        return usual | apart.get((min(a, b), max(a, b)), {})

    every = range(len(names))
    return json.dumps([{"gpu": a, "bdf": names[a], "links": [link(a, b) for b in every]} for a in every])


ALIKE, FAR = dump({}), {"link_type": "PCIE", "num_hops": 3, "weight": 72}


@pytest.mark.parametrize("text", [AMD_SMI, ALIKE, f'{{"gpu_data": {ALIKE}}}', f'{{"topology": {ALIKE}}}'])
def test_a_host_is_the_catalogs_system(text: str, tmp_path: Path) -> None:
    imported = take(tmp_path, text, gpu="mi300x")
    assert imported.files[0].kind == "amd-smi"
    assert imported.spec.domains == (load_domain("mi300x"),)


PARTITIONS = r"they are partitions \(CPX, DPX or QPX mode\)"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (AMD_SMI[:-100], ""),
        (AMD_SMI.replace("XGMI", "UNKNOWN"), ""),
        (AMD_SMI.replace(NAMES[0], "0000:ff:00.0", 2), ""),
        (table("WEIGHT TABLE:", "15", NAMES), ""),
        (table("Link Type between two GPUs", "XGMI", gpus(16)), PARTITIONS),
        (
            dump({pair: {"link_status": "DISABLED"} for pair in combinations(range(8), 2)}),
            "two GPUs is disabled",
        ),
    ],
)
def test_what_is_cut_or_no_mesh_of_gpus_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"node\.txt.*{problem}"):
        take(tmp_path, text, gpu="mi300x", pcie="32 GB/s")


def bandwidths(cell: str) -> str:
    return AMD_SMI + table("NUMA BW TABLE:", cell, NAMES).replace("SELF", "N/A")


def test_bandwidths_are_read_or_their_absence_is_said(tmp_path: Path) -> None:
    own: dict[str, Any] = {"gpu": "own", "hbm": "80 GB"}
    imported = take(tmp_path, bandwidths("36000-72000"), **own)
    (domain,) = imported.spec.domains
    assert (domain.links_per_neighbour, domain.fabric.link_bytes_per_s.value) == (2, 36e9)
    imported = take(tmp_path, bandwidths("50000-50000"), gpu="mi300x")
    assert imported.spec.domains == (load_domain("mi300x"),)
    with pytest.raises(InputError, match="210 GB/s each way of scale-up links, but mi300x has 448 GB/s"):
        take(tmp_path, bandwidths("30000-30000"), gpu="mi300x")
    for text in (AMD_SMI, bandwidths("0-0")):
        with pytest.raises(InputError, match="rate of a scale-up link"):
            take(tmp_path, text, **own)
    rates: dict[str, object] = {"bandwidth": "48000-48000"}
    imported = take(tmp_path, dump(dict.fromkeys(combinations(range(8), 2), rates)), **own)
    assert imported.spec.domains[0].fabric.link_bytes_per_s.value == 48e9


@pytest.mark.parametrize("apart", [{"link_status": "DISABLED"}, {"weight": 30}, {"num_hops": 2}])
def test_a_pair_without_a_working_link_of_its_own_has_none(apart: dict[str, object], tmp_path: Path) -> None:
    imported = take(tmp_path, dump({(2, 5): apart}), gpu="mi300x")
    raw = imported.spec.raw
    assert raw is not None
    joined = {frozenset(link.between) for link in raw.links}
    assert len(joined) == 27
    assert frozenset({"node0.g2", "node0.g5"}) not in joined


OVER_PCIE = seeds.AMD_SMI[0].decode()
TWO_GPUS, HOPS = (
    OVER_PCIE.split("\n\nGPU[0]")[0],
    OVER_PCIE[OVER_PCIE.index("Hops") : OVER_PCIE.index("Link")],
)


@pytest.mark.parametrize(
    ("text", "sockets"),
    [
        (OVER_PCIE, "01"),
        (TWO_GPUS.replace(HOPS, ""), "00"),
        (TWO_GPUS.replace("2     0", "3     0").replace("0     2", "0     3"), "01"),
        (dump({(a, b): FAR for a in range(4) for b in range(4, 8)}), "00001111"),
    ],
)
def test_gpus_over_pcie(text: str, sockets: str, tmp_path: Path) -> None:
    own = {"gpu": "mi210", "hbm": "64 GB", "fabrics": ("nvlink3",), "socket_link": "40 GB/s"}
    imported = take(tmp_path, text, **own, pcie="32 GB/s")
    (node,) = imported.files
    assert isinstance(node, NodeFound)
    assert node.sockets == tuple(sockets)
    assert node.link_kind == ("xgmi" if node.links else "pcie")
    assert imported.spec.gpus == len(sockets)
    with pytest.raises(InputError, match="PCIe rate of a GPU"):
        take(tmp_path, text, **own)


# Which GPU it is


EIGHT = two_sockets(*(gpu(i) for i in range(8)))
DEVICE = 'class="0x030200" vendor="0x10de" device="{}"'


@pytest.mark.parametrize(
    ("text", "gpu", "problem"),
    [
        ("GPU 0: NVIDIA H200 (UUID: GPU-1)\n" + topo_m(gpus(8), {}), "h100-sxm", "NVIDIA H200, not h100-sxm"),
        (topo_m(gpus(8), {}), "mi300x", "the file says NVIDIA's nvidia-smi, not mi300x"),
        (EIGHT.replace('sm="90"', 'sm="80"'), "h100-sxm", r"compute capability 80 \(.*\), not h100-sxm"),
        (EIGHT.replace("sm=", 'gcn="gfx950" sm='), "mi300x", r"gfx950 \(mi350x or mi355x\), not mi300x"),
        (EIGHT.replace('class="0x030200"', DEVICE.format("0x2335")), "h100-sxm", r"2335 \(h200-sxm\), not"),
        (EIGHT.replace('class="0x030200"', DEVICE.format("0xffff")), "h100-sxm", ""),
        (AMD_SMI + "GPU: 0\n    ASIC:\n        MARKET_NAME: AMD Instinct MI300X\n", "mi355x", "not mi355x"),
    ],
)
def test_another_gpu_than_the_file_names_is_refused(
    tmp_path: Path, text: str, gpu: str, problem: str
) -> None:
    with pytest.raises(InputError, match=problem) if problem else nullcontext():
        assert take(tmp_path, text, gpu=gpu, pcie="64 GB/s").spec.gpus == 8


def test_a_pci_device_of_one_product_needs_no_option(tmp_path: Path) -> None:
    imported = take(tmp_path, EIGHT.replace('class="0x030200"', DEVICE.format("0x2330")))
    assert imported.spec.domains[0].gpu.name == "h100-sxm"
    with pytest.raises(InputError, match="the GPU type"):
        take(tmp_path, EIGHT)


# NICs: as many, and as fast, as the dump has near its GPUs, whoever shares them


TREE = "SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\nSwitchName=core Switches=leaf[1-2]\n"


@dataclass(frozen=True)
class Slot:
    """PCIe switch ``switch`` of a socket (None: its root complex), GPUs and NICs there, ports of a NIC."""

    socket: int
    switch: int | None
    gpus: int
    nics: int
    ports: int = 1


def far(a: Slot, b: Slot) -> int:
    """Return 0 on a PCIe switch, 1 on a socket, 2 between sockets."""
    if a.switch is not None and (a.socket, a.switch) == (b.socket, b.switch):
        return 0
    return 1 if a.socket == b.socket else 2


@dataclass(frozen=True)
class Host:
    """A host as a list of slots; ``nvlink``: NVLink joins its GPUs."""

    slots: tuple[Slot, ...]
    nvlink: bool
    gbit: int

    def gpus(self) -> list[Slot]:
        return [slot for slot in self.slots for _ in range(slot.gpus)]

    def ports(self) -> list[Slot]:
        return [slot for slot in self.slots for _ in range(slot.nics * slot.ports)]

    def near(self) -> int:
        """NIC ports that are near a GPU, counted one by one."""

        def used(port: Slot) -> bool:
            best = [all(far(gpu, port) <= far(gpu, other) for other in self.ports()) for gpu in self.gpus()]
            return any(best) or any(far(gpu, port) == 0 for gpu in self.gpus())

        return sum(used(port) for port in self.ports())

    def topo_m(self) -> str:
        """The host as `nvidia-smi topo -m` prints it."""
        chips, places = self.gpus(), [*self.gpus(), *self.ports()]
        names = [*gpus(len(chips)), *(f"NIC{i}" for i in range(len(self.ports())))]
        ways = {
            pair: ("PIX", "NODE", "SYS")[far(*(places[i] for i in pair))] for pair in pairs(len(places), "")
        }
        return topo_m(names, ways | (pairs(len(chips), "NV18") if self.nvlink else {}))

    def xml(self) -> str:
        """The host as NCCL writes it."""
        dev = net = bus = 0
        sockets: dict[int, str] = {}
        link = '<nvlink target="0000:ff:00.0" count="18" tclass="0x068000"/>' if self.nvlink else ""
        for slot in self.slots:
            inside = ""
            for _ in range(slot.gpus):
                bus += 1
                inside += pci(GPU, f'<gpu dev="{dev}" sm="90">{link}</gpu>', bus)
                dev += 1
            for _ in range(slot.nics):
                bus += 1
                ports = ""
                for port in range(slot.ports):
                    ports += f'<net name="mlx5_{net}" dev="{net}" speed="{self.gbit * 1000}" port="{port}"/>'
                    net += 1
                inside += pci(NIC, f"<nic>{ports}</nic>", bus)
            if slot.switch is not None:
                bus += 1
                inside = pci(SWITCH, inside, bus)
            sockets[slot.socket] = sockets.get(slot.socket, "") + inside
        return system(*(sockets[number] for number in sorted(sockets)))


@st.composite
def hosts(draw: Any) -> Host:
    """Hosts of 2 to 16 GPUs and 1 to 16 NICs on one or two sockets, with and without PCIe switches."""
    slots = []
    for socket in range(draw(st.integers(1, 2))):
        counts = st.tuples(st.integers(0, 4), st.integers(0, 3), st.sampled_from([1, 1, 2]))
        switches = draw(st.sampled_from([(None,), (0,), (0, 1), (0, None), (0, 1, 2, 3)]))
        slots += [Slot(socket, switch, *draw(counts)) for switch in switches]
    host = Host(tuple(slots), draw(st.booleans()), draw(st.sampled_from([100, 200, 400])))
    if not 2 <= len(host.gpus()) <= 16 or not 1 <= len(host.ports()) <= 16:
        host = Host((Slot(0, 0, 2, 1), Slot(1, 0, 2, 1)), host.nvlink, host.gbit)
    return host


@settings(max_examples=12, deadline=None)
@given(host=hosts())
def test_nics_are_conserved(tmp_path_factory: pytest.TempPathFactory, host: Host) -> None:
    """Of the same host four times on two leaves; with PCIe wide enough its GPUs fill all NICs that are near."""
    folder, port = tmp_path_factory.mktemp("host"), host.gbit * 1e9 / 8
    nic: dict[str, Any] = {"nic": f"{host.gbit} Gb/s", "oversubscription": 1.0}
    options = ImportOptions(gpu="h100-sxm", pcie="1000 GB/s", socket_link="4000 GB/s", **nic)
    (folder / "tree.conf").write_text(TREE)
    for text in (host.xml(), host.topo_m()):
        (folder / "node.txt").write_text(text)
        imported = import_files([str(folder / "tree.conf"), str(folder / "node.txt")], options)
        graph = build_cluster(imported.spec).graph
        leaves = nodes_of_kind(graph, "leaf")
        edges = [
            (end, leaf) for leaf in leaves for end in graph[leaf] if graph.nodes[end]["node"] is not None
        ]
        rate = sum(graph.edges[edge]["bytes_per_s"] for edge in edges)
        assert rate == pytest.approx(4 * host.near() * port), imported.assumptions
        # every NIC node has one cable, and as much below it as above it
        for node in nodes_of_kind(graph, "nic"):
            below = [other for other in graph[node] if other not in leaves]
            assert len(graph[node]) == 2
            assert graph.edges[node, below[0]]["bytes_per_s"] == port
    assert sent(graph, graph.nodes[edges[0][0]]["node"], leaves) == pytest.approx(host.near() * port)


def sent(graph: nx.Graph[str], host: str, leaves: list[str]) -> float:
    """What all GPUs of a host can send out of it at once."""
    inside = [name for name, own in graph.nodes(data="node") if own == host]
    kinds = dict(graph.nodes(data="kind"))
    part: nx.DiGraph[str] = nx.DiGraph()
    for a, b in graph.subgraph([*inside, *leaves]).to_directed().edges:
        if a in inside and "switch" not in (kinds[a], kinds[b]):
            part.add_edge(a, b, capacity=graph.edges[a, b]["bytes_per_s"])
    part.add_edges_from(("from", name) for name in inside if kinds[name] == "gpu")
    part.add_edges_from((leaf, "to") for leaf in leaves)
    return float(nx.maximum_flow_value(part, "from", "to"))
