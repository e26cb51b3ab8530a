"""``amd-smi topology`` and ``rocm-smi --showtopo``: an MI3xx host, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from topology import InputError, load_domain
from topology.importers import ImportOptions, import_files
from topology.importers.found import NodeFound

NAMES = [f"0000:{number:02x}:00.0" for number in range(8)]


def table(title: str, other: str, names: list[str]) -> str:
    rows = [[name, *("SELF" if name == one else other for one in names)] for name in names]
    return "\n".join([title, *("  ".join(row) for row in [["", *names], *rows])]) + "\n\n"


AMD_SMI = table("WEIGHT TABLE:", "15", NAMES) + table("LINK TYPE TABLE:", "XGMI", NAMES)
ROCM_SMI = table("=== Hops between two GPUs ===", "1", [f"GPU{i}" for i in range(8)]) + table(
    "=== Link Type between two GPUs ===", "XGMI", [f"GPU{i}" for i in range(8)]
)
JSON = json.dumps(
    [
        {
            "gpu": a,
            "bdf": NAMES[a],
            "links": [{"gpu": b, "link_type": "SELF" if a == b else "XGMI"} for b in range(8)],
        }
        for a in range(8)
    ]
)


@pytest.mark.parametrize("text", [AMD_SMI, ROCM_SMI, JSON], ids=["amd-smi", "rocm-smi", "json"])
def test_a_host_is_the_catalogs_system(text: str, tmp_path: Path) -> None:
    (tmp_path / "node.txt").write_text(text)
    imported = import_files([str(tmp_path / "node.txt")], ImportOptions(gpu="mi300x"))
    assert imported.files[0].kind == "amd-smi"
    assert imported.spec.domains == (load_domain("mi300x"),)


@pytest.mark.parametrize(
    "text",
    [
        AMD_SMI[:-100],
        AMD_SMI.replace("XGMI", "PCIE", 1),
        AMD_SMI.replace("XGMI", "UNKNOWN"),
        AMD_SMI.replace(NAMES[0], "0000:ff:00.0", 2),
        table("WEIGHT TABLE:", "15", NAMES),
        JSON.replace('"gpu": 1,', '"gpu": 70,', 1),
        JSON.replace(NAMES[1], NAMES[0]),
    ],
)
def test_what_is_cut_or_no_mesh_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "node.txt").write_text(text)
    with pytest.raises(InputError, match=r"node\.txt"):
        import_files([str(tmp_path / "node.txt")], ImportOptions(gpu="mi300x", pcie="32 GB/s"))


def bandwidths(text: str, cell: str) -> str:
    return text + table("NUMA BW TABLE:", cell, NAMES).replace("SELF", "N/A")


def test_bandwidths_are_read_or_their_absence_is_said(tmp_path: Path) -> None:
    path, own = tmp_path / "node.txt", ImportOptions(gpu="own", hbm="80 GB")
    path.write_text(bandwidths(AMD_SMI, "36000-72000"))
    imported = import_files([str(path)], own)
    (domain,) = imported.spec.domains
    assert (domain.links_per_neighbour, domain.fabric.link_bytes_per_s.value) == (2, 36e9)
    assert "node.txt: 36 GB/s a link each way, 2 between two GPUs." in imported.assumptions
    path.write_text(bandwidths(AMD_SMI, "50000-50000"))
    imported = import_files([str(path)], ImportOptions(gpu="mi300x"))
    assert imported.spec.domains == (load_domain("mi300x"),)
    assert any("in the catalog (node.txt: 50 GB/s)" in line for line in imported.assumptions)
    path.write_text(bandwidths(AMD_SMI, "30000-30000"))
    with pytest.raises(InputError, match="210 GB/s each way of scale-up links, but mi300x has 448 GB/s"):
        import_files([str(path)], ImportOptions(gpu="mi300x"))
    for text in (AMD_SMI, bandwidths(AMD_SMI, "0-0")):
        path.write_text(text)
        imported = import_files([str(path)], ImportOptions(gpu="mi300x"))
        assert imported.assumptions[0].startswith("node.txt: no bandwidths given")
        with pytest.raises(InputError, match="rate of a scale-up link"):
            import_files([str(path)], own)


def test_bandwidths_of_the_json(tmp_path: Path) -> None:
    rows = json.loads(JSON)
    for row in rows:
        for link in row["links"]:
            link["bandwidth"] = "N/A" if link["link_type"] == "SELF" else "48000-48000"
    (tmp_path / "node.json").write_text(json.dumps(rows))
    imported = import_files([str(tmp_path / "node.json")], ImportOptions(gpu="own", hbm="80 GB"))
    assert imported.spec.domains[0].fabric.link_bytes_per_s.value == 48e9


@pytest.mark.parametrize(
    ("gpu", "problem"), [("mi355x", "AMD Instinct MI300X, not mi355x"), ("h100-sxm", "not h100-sxm")]
)
def test_another_gpu_than_the_file_names_is_refused(tmp_path: Path, gpu: str, problem: str) -> None:
    (tmp_path / "node.txt").write_text(
        AMD_SMI + "GPU: 0\n    ASIC:\n        MARKET_NAME: AMD Instinct MI300X\n"
    )
    with pytest.raises(InputError, match=problem):
        import_files([str(tmp_path / "node.txt")], ImportOptions(gpu=gpu))


def dump(apart: dict[tuple[int, int], dict[str, object]], names: list[str] = NAMES) -> str:
    """The JSON of a host whose links are direct and enabled but for those given."""

    def link(a: int, b: int) -> dict[str, object]:
        usual = {"gpu": b, "weight": 15, "num_hops": 1, "link_status": "ENABLED", "link_type": "XGMI"}
        return usual | apart.get((min(a, b), max(a, b)), {})

    every = range(len(names))
    return json.dumps([{"gpu": a, "bdf": names[a], "links": [link(a, b) for b in every]} for a in every])


@pytest.mark.parametrize("apart", [{"link_status": "DISABLED"}, {"weight": 30}, {"num_hops": 2}])
def test_a_pair_without_a_working_link_of_its_own_has_none(apart: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text(dump({(2, 5): apart}))
    imported = import_files([str(tmp_path / "node.json")], ImportOptions(gpu="mi300x"))
    raw = imported.spec.raw
    assert raw is not None
    joined = {frozenset(link.between) for link in raw.links}
    assert len(joined) == 27
    assert frozenset({"node0.g2", "node0.g5"}) not in joined
    text = " ".join((*imported.anomalies, *imported.assumptions))
    assert ("GPU2 and GPU5 is disabled" if "link_status" in apart else "GPU2-GPU5 (2 hops") in text


def test_weights_and_status_of_the_text(tmp_path: Path) -> None:
    weights = table("WEIGHT TABLE:", "15", NAMES).splitlines()
    row = weights[2].split()
    weights[2] = " ".join([*row[:4], "45", *row[5:]])  # GPU0 to GPU3
    status = table("ACCESS TABLE:", "ENABLED", NAMES).splitlines()
    status[9] = status[9].replace("ENABLED", "DISABLED", 1)  # GPU7 to GPU0
    tables = ["\n".join(status), "\n".join(weights), table("LINK TYPE TABLE:", "XGMI", NAMES)]
    (tmp_path / "node.txt").write_text("\n\n".join(tables))
    imported = import_files([str(tmp_path / "node.txt")], ImportOptions(gpu="mi300x"))
    assert imported.spec.raw is not None
    assert len(imported.spec.raw.links) == 26
    assert "node.txt: the link between GPU0 and GPU7 is disabled: left out." in imported.anomalies
    assert any("GPU0-GPU3 (3 hops, weight 45)" in line for line in imported.assumptions)


def test_halves_whose_links_are_disabled_meet_over_pcie(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text(
        dump({(a, b): {"link_status": "DISABLED"} for a in range(4) for b in range(4, 8)})
    )
    with pytest.raises(InputError, match=r"way between GPUs whose links are disabled.*pcie"):
        import_files([str(tmp_path / "node.json")], ImportOptions(gpu="mi300x"))
    imported = import_files([str(tmp_path / "node.json")], ImportOptions(gpu="mi300x", pcie="64 GB/s"))
    assert any("2 groups of GPUs are connected only by PCIe" in line for line in imported.anomalies)


def test_a_host_without_a_working_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text(
        dump({(a, b): {"link_status": "DISABLED"} for a in range(8) for b in range(8)})
    )
    with pytest.raises(InputError, match="every link between two GPUs is disabled"):
        import_files([str(tmp_path / "node.json")], ImportOptions(gpu="mi300x"))


@pytest.mark.parametrize(
    "text",
    [
        table("Link Type between two GPUs", "XGMI", [f"GPU{i}" for i in range(16)]),
        dump({}, [f"0000:{bus:02x}:00.{function}" for bus in range(4) for function in range(2)]),
    ],
    ids=["more than a host has", "functions of one device"],
)
def test_partitions_are_no_gpus(text: str, tmp_path: Path) -> None:
    (tmp_path / "node.txt").write_text(text)
    with pytest.raises(InputError, match=r"they are partitions \(CPX, DPX or QPX mode\)"):
        import_files([str(tmp_path / "node.txt")], ImportOptions(gpu="mi300x"))


def host(groups: int, size: int, *, hops: bool = True, numa: str = "") -> str:
    """What rocm-smi says of ``groups`` of ``size`` GPUs joined by xGMI; groups are joined over PCIe, two a socket."""
    names = [f"GPU{i}" for i in range(groups * size)]

    def cell(a: int, b: int, xgmi: str, near: str, far: str) -> str:
        island, socket = a // size == b // size, a // size // 2 == b // size // 2
        return "0" if a == b else xgmi if island else near if socket else far

    def matrix(title: str, *cells: str) -> str:
        rows = [[name, *(cell(a, b, *cells) for b in range(len(names)))] for a, name in enumerate(names)]
        return (
            "\n".join([f"==== {title} between two GPUs ====", *map("   ".join, [["", *names], *rows])])
            + "\n\n"
        )

    text = matrix("Weight", "15", "40", "72") + (matrix("Hops", "1", "2", "3") if hops else "")
    text += matrix("Link Type", "XGMI", "PCIE", "PCIE") + "==== Numa Nodes ====\n"
    return text + "".join(f"GPU[{i}]\t\t: (Topology) Numa Node: {node}\n" for i, node in enumerate(numa))


@pytest.mark.parametrize(
    ("text", "sockets", "says"),
    [
        (
            host(4, 2),
            "00001111",
            "24 pairs of GPUs joined over PCIe alone; three hops read as between two sockets",
        ),
        (host(4, 1), "0011", "6 pairs of GPUs joined over PCIe alone; three hops"),
        (host(4, 1, numa="0301"), "0301", "NUMA nodes read as sockets"),
        (host(4, 1, hops=False), "0000", "no NUMA nodes or hops given"),
        (host(2, 4, numa="00"), "00000000", "16 pairs of GPUs joined over PCIe alone; three hops"),
    ],
)
def test_gpus_over_pcie(text: str, sockets: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "node.txt").write_text(text)
    options = ImportOptions(
        gpu="mi210", hbm="64 GB", fabrics=("nvlink3",), pcie="32 GB/s", socket_link="40 GB/s"
    )
    imported = import_files([str(tmp_path / "node.txt")], options)
    (node,) = imported.files
    assert isinstance(node, NodeFound)
    assert node.sockets == tuple(sockets)
    assert node.link_kind == ("xgmi" if node.links else "pcie")
    assert any(says in line for line in imported.assumptions)
    assert imported.spec.gpus == len(sockets)
    with pytest.raises(InputError, match="PCIe rate of a GPU"):
        import_files([str(tmp_path / "node.txt")], replace(options, pcie=None))


def test_the_json_of_gpus_over_pcie(tmp_path: Path) -> None:
    apart: dict[str, object] = {"link_type": "PCIE", "num_hops": 3, "weight": 72}
    (tmp_path / "node.json").write_text(dump({(a, b): apart for a in range(4) for b in range(4, 8)}))
    options = ImportOptions(
        gpu="mi210", hbm="64 GB", fabrics=("nvlink3",), pcie="32 GB/s", socket_link="9 GB/s"
    )
    (node,) = import_files([str(tmp_path / "node.json")], options).files
    assert isinstance(node, NodeFound)
    assert (len(node.links), node.sockets) == (12, tuple("00001111"))


@pytest.mark.parametrize("key", ["gpu_data", "topology"])
def test_the_json_in_an_object(key: str, tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text(f'{{"{key}": {JSON}}}')
    imported = import_files([str(tmp_path / "node.json")], ImportOptions(gpu="mi300x"))
    assert imported.spec.domains == (load_domain("mi300x"),)


def test_pairs_of_an_mi250x_host_are_said_to_be_of_several_links(tmp_path: Path) -> None:
    near = {0: (1, 2, 6), 1: (3, 7), 2: (3, 4), 3: (5,), 4: (5, 6), 5: (7,), 6: (7,)}
    direct = {frozenset((a, b)) for a, others in near.items() for b in others}
    rows = [
        [f"GPU{a}", *("0" if a == b else "15" if frozenset((a, b)) in direct else "30" for b in range(8))]
        for a in range(8)
    ]
    names = [f"GPU{i}" for i in range(8)]
    weights = "\n".join(["WEIGHT TABLE:", *("  ".join(row) for row in [["", *names], *rows])]) + "\n\n"
    (tmp_path / "t.txt").write_text(weights + table("LINK TYPE TABLE:", "XGMI", names))
    imported = import_files([str(tmp_path / "t.txt")], ImportOptions(gpu="mi250x"))
    assert imported.spec.raw is not None
    assert len(imported.spec.raw.links) == 12
    assert any(
        "3 direct links, one to each GPU" in line and "mi250x has 6" in line for line in imported.anomalies
    )
