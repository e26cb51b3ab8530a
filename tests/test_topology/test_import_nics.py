"""NICs of imported hosts: as many, and as fast, as the dump has near its GPUs, whoever shares them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology.build import build_cluster
from topology.importers import Imported, ImportOptions, import_files
from topology.importers.pcie import deal

TREE = "SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\nSwitchName=core Switches=leaf[1-2]\n"


@dataclass(frozen=True)
class Slot:
    """PCIe switch ``switch`` of a socket (None: its root complex), GPUs and NICs there, ports of a NIC."""

    socket: int
    switch: int | None
    gpus: int
    nics: int
    ports: int = 1


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

        def far(a: Slot, b: Slot) -> int:
            if a.switch is not None and (a.socket, a.switch) == (b.socket, b.switch):
                return 0
            return 1 if a.socket == b.socket else 2

        def used(port: Slot) -> bool:
            best = [all(far(gpu, port) <= far(gpu, other) for other in self.ports()) for gpu in self.gpus()]
            return any(best) or any(far(gpu, port) == 0 for gpu in self.gpus())

        return sum(used(port) for port in self.ports())

    def xml(self) -> str:
        """The host as NCCL writes it."""
        dev = net = bus = 0
        sockets: dict[int, str] = {}
        for slot in self.slots:
            inner = ""
            for _ in range(slot.gpus):
                bus += 1
                link = '<nvlink target="0000:ff:00.0" count="18" tclass="0x068000"/>' if self.nvlink else ""
                inner += (
                    f'<pci busid="0000:{bus:02x}:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">'
                    f'<gpu dev="{dev}" sm="90">{link}</gpu></pci>'
                )
                dev += 1
            for _ in range(slot.nics):
                bus += 1
                ports = ""
                for port in range(slot.ports):
                    ports += f'<net name="mlx5_{net}" dev="{net}" speed="{self.gbit * 1000}" port="{port}"/>'
                    net += 1
                inner += f'<pci busid="0000:{bus:02x}:00.0" class="0x020700"><nic>{ports}</nic></pci>'
            if slot.switch is not None:
                bus += 1
                inner = (
                    f'<pci busid="0000:{bus:02x}:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" '
                    f'link_width="16">{inner}</pci>'
                )
            sockets[slot.socket] = sockets.get(slot.socket, "") + inner
        return (
            '<system version="1">'
            + "".join(f'<cpu numaid="{n}">{text}</cpu>' for n, text in sockets.items())
            + "</system>"
        )

    def topo_m(self) -> str:
        """The host as `nvidia-smi topo -m` prints it."""
        places = [(f"GPU{i}", slot) for i, slot in enumerate(self.gpus())]
        places += [(f"NIC{i}", slot) for i, slot in enumerate(self.ports())]

        def cell(a: tuple[str, Slot], b: tuple[str, Slot]) -> str:
            if a[0] == b[0]:
                return " X "
            if self.nvlink and a[0][:3] == b[0][:3] == "GPU":
                return "NV18"
            if a[1].switch is not None and (a[1].socket, a[1].switch) == (b[1].socket, b[1].switch):
                return "PIX"
            return "NODE" if a[1].socket == b[1].socket else "SYS"

        lines = ["\t" + "\t".join([name for name, _ in places])]
        lines += ["\t".join([a[0], *(cell(a, b) for b in places)]) for a in places]
        return "\n".join(lines) + "\n"


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


def taken(folder: Path, text: str, gbit: int) -> Imported:
    """The host four times on two leaves."""
    (folder / "tree.conf").write_text(TREE)
    (folder / "node.txt").write_text(text)
    options = ImportOptions(
        gpu="h100-sxm", nic=f"{gbit} Gb/s", oversubscription=1.0, pcie="1000 GB/s", socket_link="4000 GB/s"
    )
    return import_files([str(folder / "tree.conf"), str(folder / "node.txt")], options)


@settings(max_examples=12, deadline=None)
@given(host=hosts())
def test_nics_are_conserved(tmp_path_factory: pytest.TempPathFactory, host: Host) -> None:
    folder = tmp_path_factory.mktemp("host")
    for text in (host.xml(), host.topo_m()):
        imported = taken(folder, text, host.gbit)
        graph = build_cluster(imported.spec).graph
        kinds = {node: data["kind"] for node, data in graph.nodes(data=True)}
        leaves = [node for node, kind in kinds.items() if kind == "leaf"]
        edges = [
            (end, leaf) for leaf in leaves for end in graph[leaf] if graph.nodes[end]["node"] is not None
        ]
        found = sum(graph.edges[edge]["bytes_per_s"] for edge in edges)
        assert found == pytest.approx(4 * host.near() * host.gbit * 1e9 / 8), imported.assumptions
        # every NIC node has one cable, and as much below it as above it
        for nic in (node for node, kind in kinds.items() if kind == "nic"):
            below = [other for other in graph[nic] if other not in leaves]
            assert len(graph[nic]) == 2
            assert graph.edges[nic, below[0]]["bytes_per_s"] == host.gbit * 1e9 / 8


def test_one_nic_for_two_gpus_behind_a_switch_is_shared(tmp_path: Path) -> None:
    host = Host(tuple(Slot(i // 2, i % 2, 2, 1) for i in range(4)), nvlink=True, gbit=400)
    imported = taken(tmp_path, host.xml(), 400)
    graph = build_cluster(imported.spec).graph
    assert sorted(graph["n1.pcie1"]) == ["n1.g2", "n1.g3", "n1.mlx5_1"]
    assert graph.edges["n1.pcie1", "n1.mlx5_1"]["bytes_per_s"] == 50e9
    assert graph.edges["n1.g2", "n1.pcie1"]["bytes_per_s"] == pytest.approx(63e9, rel=1e-3)


def test_a_slot_slower_than_its_card_limits_it(tmp_path: Path) -> None:
    host = Host((Slot(0, 0, 1, 1, ports=2), Slot(0, 1, 1, 1, ports=2)), nvlink=True, gbit=400)
    slow = '<pci busid="0000:02:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">'
    text = host.xml().replace('<pci busid="0000:02:00.0" class="0x020700">', slow)
    graph = build_cluster(taken(tmp_path, text, 400).spec).graph
    slot = next(node for node in graph if node.startswith("n1.slot"))
    assert min(graph.edges[slot, other]["bytes_per_s"] for other in graph[slot]) == pytest.approx(
        31.5e9, rel=1e-3
    )


@pytest.mark.parametrize(
    ("near", "gpus", "served"),
    [
        ([(0, 1, 2, 3)] * 2, 4, [(0, 1), (2, 3)]),
        ([(0, 1)] * 4, 2, [(0,), (0,), (1,), (1,)]),
        ([(0,), (0, 1)], 2, [(0,), (1,)]),
        ([(0, 1)] * 3, 2, [(0,), (1,), (0, 1)]),
        ([(0, 1, 2)] * 2, 3, [(0, 1, 2)] * 2),
        ([()], 2, [()]),
    ],
)
def test_nics_are_dealt_evenly(near: list[tuple[int, ...]], gpus: int, served: list[tuple[int, ...]]) -> None:
    assert deal(near, [1.0] * len(near), gpus) == served
