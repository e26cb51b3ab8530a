"""``amd-smi topology`` and ``rocm-smi --showtopo``: direct xGMI neighbours, their links, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from topology import InputError, load_domain
from topology.importers import ImportOptions, import_files
from topology.importers.amd_smi import read_amd_smi
from topology.importers.registry import kind_of
from topology.importers.source import Source

if TYPE_CHECKING:
    from pathlib import Path

    from topology.importers.found import NodeFound

NAMES = [f"0000:{number:02x}:00.0" for number in (0x0C, 0x22, 0x38, 0x5C)]


def table(title: str, cells: list[list[object]], names: list[str] = NAMES) -> str:
    width = max(len(name) for name in names) + 1
    rows = [[name, *map(str, row)] for name, row in zip(names, cells, strict=True)]
    lines = ["".join(word.ljust(width) for word in row) for row in [["", *names], *rows]]
    return "\n".join([f"{title}:", *lines]) + "\n"


def every(same: object, other: object, size: int = 4) -> list[list[object]]:
    return [[same if a == b else other for b in range(size)] for a in range(size)]


def text(**tables: list[list[object]]) -> str:
    """The tables of four GPUs in a full mesh, others in place of those named."""
    titles = {
        "access": "ACCESS TABLE",
        "weight": "WEIGHT TABLE",
        "hops": "HOPS TABLE",
        "type": "LINK TYPE TABLE",
        "bandwidth": "NUMA BW TABLE",
    }
    usual = {
        "access": every("ENABLED", "ENABLED"),
        "weight": every(0, 15),
        "hops": every(0, 1),
        "type": every("SELF", "XGMI"),
        "bandwidth": every("N/A", "50000-50000"),
    }
    return "\n".join(table(titles[key], cells) for key, cells in (usual | tables).items())


def read(given: str) -> tuple[NodeFound, Source]:
    source = Source("node.txt", given)
    assert kind_of(source) == "amd-smi"
    return read_amd_smi(source), source


def rows() -> list[dict[str, Any]]:
    """The JSON of two GPUs joined over PCIe."""
    link = {"weight": 40, "link_status": "ENABLED", "link_type": "PCIE", "num_hops": 2, "bandwidth": "N/A"}
    own = link | {"weight": 0, "link_type": "SELF", "num_hops": 0}
    return [
        {"gpu": a, "bdf": NAMES[a], "links": [{"gpu": b, **(own if a == b else link)} for b in range(2)]}
        for a in range(2)
    ]


def test_a_full_mesh_is_the_catalogs_system(tmp_path: Path) -> None:
    names = [f"GPU{i}" for i in range(8)]
    path = tmp_path / "node.txt"
    path.write_text(table("LINK TYPE TABLE", every("SELF", "XGMI", 8), names))
    (domain,) = import_files([str(path)], ImportOptions(gpu="mi300x")).spec.domains
    assert domain.links_per_neighbour * domain.fabric.link_bytes_per_s.value == pytest.approx(64e9)
    assert domain.scale_up_bytes_per_s == load_domain("mi300x").scale_up_bytes_per_s


def test_neighbours_by_weight_and_links_by_bandwidth() -> None:
    # pairs of dies with four links, a ring of single ones between the pairs, two steps across
    weight = [[0, 15, 15, 30], [15, 0, 30, 15], [15, 30, 0, 15], [30, 15, 15, 0]]
    rate = [[f"50000-{200000 if a // 2 == b // 2 else 50000}" for b in range(4)] for a in range(4)]
    found, source = read(text(weight=weight, bandwidth=rate))  # type: ignore[arg-type]
    assert found.links == (("GPU0", "GPU1", 4), ("GPU0", "GPU2", 1), ("GPU1", "GPU3", 1), ("GPU2", "GPU3", 4))
    assert "4 are joined by xGMI directly, 2 through others, 0 over PCIe" in source.notes[0]
    assert found.chips == ()
    assert found.link_kind == "xgmi"


def test_without_weights_neighbours_are_those_with_a_bandwidth() -> None:
    # the driver says one hop of every pair that xGMI joins, and 0-0 of those that are no neighbours
    rate = [["50000-50000" if (a + b) % 2 else "0-0" for b in range(4)] for a in range(4)]
    tables = [table("LINK TYPE TABLE", every("SELF", "XGMI")), table("HOPS TABLE", every(0, 1))]
    found, _ = read("\n".join([*tables, table("NUMA BW TABLE", rate)]))  # type: ignore[arg-type]
    assert [(a, b) for a, b, _ in found.links] == [
        ("GPU0", "GPU1"),
        ("GPU0", "GPU3"),
        ("GPU1", "GPU2"),
        ("GPU2", "GPU3"),
    ]


def test_a_pair_over_pcie_among_xgmi_and_closed_access_are_told() -> None:
    types = every("SELF", "XGMI")
    types[0][1] = types[1][0] = "PCIE"
    access = every("ENABLED", "ENABLED")
    access[2][3] = "DISABLED"
    found, source = read(text(type=types, access=access))
    assert len(found.links) == 5
    assert len(source.anomalies) == 2


def test_json_and_sockets_over_pcie() -> None:
    found, _ = read(json.dumps(rows()))
    assert (found.link_kind, found.links) == ("pcie", ())
    assert len(set(found.sockets)) == 1
    far = rows()
    far[0]["links"][1]["num_hops"] = far[1]["links"][0]["num_hops"] = 3
    assert len(set(read(json.dumps(far))[0].sockets)) == 2


def test_rocm_smi_and_its_numa_nodes() -> None:
    names = ["GPU0", "GPU1"]
    given = table("=== Link Type between two GPUs ===", every("0", "XGMI", 2), names).replace(":\n", "\n", 1)
    given += "=== Numa Nodes ===\nGPU[0]\t\t: (Topology) Numa Node: 0\nGPU[1]\t\t: (Topology) Numa Node: 1\n"
    found, _ = read(given)
    assert (found.links, found.sockets) == ((("GPU0", "GPU1", 1),), ("0", "1"))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (text().replace("SELF", "", 1), "has 3 cells for 4 GPUs; is the file cut"),
        (text()[: text().rindex("0000:5c")], "no row of 0000:5c:00.0; is the file cut"),
        (table("WEIGHT TABLE", every(0, 15)), "no table of link types"),
        (text(weight=[[0, 15, 15, 15], [13, 0, 15, 15], [15, 15, 0, 15], [15, 15, 15, 0]]), "and back '13'"),
        (text(type=every("SELF", "NVLINK")), "link type 'NVLINK'"),
        (text().replace(NAMES[1], NAMES[0]), "names a GPU twice"),
        (table("LINK TYPE TABLE", [["X"]], ["node0"]), "must name the GPUs"),
        (json.dumps([rows()[0]]), "has 2 links for 1 GPUs"),
        (json.dumps([rows()[0], {**rows()[1], "gpu": 0}]), "names a GPU twice"),
        (json.dumps(rows()).replace('"gpu": 1, "weight"', '"gpu": 7, "weight"'), "gpu 7 is not among"),
    ],
)
def test_what_is_cut_or_contradicts_itself_is_refused(given: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_amd_smi(Source("node.txt", given))
