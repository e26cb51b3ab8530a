"""`nvidia-smi topo -m` as people paste it."""

from __future__ import annotations

from pathlib import Path

import pytest

from topology.base.errors import InputError
from topology.importers import ImportOptions, import_files
from topology.importers.importer import parse
from topology.importers.source import Source
from toys import topo_m


def gpus(count: int) -> list[str]:
    return [f"GPU{i}" for i in range(count)]


def pairs(count: int, cell: str) -> dict[tuple[int, int], str]:
    return {(i, j): cell for i in range(count) for j in range(i + 1, count)}


def test_unequal_links_are_direct_ones() -> None:
    cells = pairs(4, "NV1") | {(0, 1): "NV2", (2, 3): "NV2", (0, 3): "SYS"}
    node = parse(Source("t", topo_m(gpus(4), cells)), "topo-m")
    assert ("GPU0", "GPU1", 2) in node.links
    assert all({a, b} != {"GPU0", "GPU3"} for a, b, _ in node.links)


@pytest.mark.parametrize(
    ("count", "cell", "links_of_gpu", "switched", "says"),
    [
        (8, "NV18", 18, True, ""),
        (2, "NV18", 18, True, "18 NVLinks between two of 2 GPUs read as all that each has, to switches"),
        (3, "NV12", 12, True, ""),
        (16, "NV6", 6, True, ""),
        (8, "NV4", 4, True, ""),
        (2, "NV12", 12, False, "12 NVLinks between two of 2 GPUs read as direct ones"),
        (4, "NV6", 18, False, "6 NVLinks between two of 4 GPUs read as direct ones"),
        (4, "NV4", 12, False, ""),
        (2, "NV4", 4, False, ""),
    ],
)
def test_links_that_no_mesh_can_have_go_to_switches(
    count: int, cell: str, links_of_gpu: int, switched: bool, says: str
) -> None:
    node = parse(Source("t", topo_m(gpus(count), pairs(count, cell))), "topo-m")
    assert set(node.links_of_gpus.values()) == {links_of_gpu}
    assert node.hidden == switched
    assert [says in line for line in node.readings] == [True] * bool(says)


def test_links_of_neither_a_mesh_nor_one_switch_are_refused() -> None:
    halves = pairs(8, "SYS") | {(a + at, b + at): "NV18" for a, b in pairs(4, "") for at in (0, 4)}
    with pytest.raises(InputError, match="a GPU has 54 NVLinks in all, more than the 18 of any without"):
        parse(Source("t", topo_m(gpus(8), halves)), "topo-m")


def test_pairs_of_gpus_on_wide_bridges_are_direct() -> None:
    node = parse(Source("t", topo_m(gpus(4), {(0, 1): "NV18", (2, 3): "NV18"})), "topo-m")
    assert node.links == (("GPU0", "GPU1", 18), ("GPU2", "GPU3", 18))
    assert node.readings == ("t: 18 NVLinks between two of 4 GPUs read as direct ones.",)


def test_two_gpus_of_a_switched_host(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(topo_m(gpus(2), {(0, 1): "NV18"}))
    imported = import_files([str(tmp_path / "t.txt")], ImportOptions(gpu="h100-sxm"))
    (domain,) = imported.spec.domains
    assert (domain.structure, domain.scale_up_bytes_per_s) == ("switch", 450e9)


@pytest.mark.parametrize("cells", [{(0, 1): "NV0"}, {(0, 2): "NV4"}, {(2, 3): "NV4"}])
def test_nvlinks_that_cannot_be_are_refused(cells: dict[tuple[int, int], str]) -> None:
    with pytest.raises(InputError, match=r"line \d: row \w+, column \w+ is NV\d; NVLinks join two GPUs"):
        parse(Source("t", topo_m([*gpus(2), "NIC0", "NIC1"], cells)), "topo-m")


def test_a_legend_names_nics_of_the_matrix() -> None:
    with pytest.raises(InputError, match="the matrix has no column NIC7 of the legend"):
        parse(Source("t", topo_m([*gpus(2), "NIC0"], {}, legend="\n  NIC7: mlx5_7\n")), "topo-m")


def test_nics_beside_gpus_need_not_be_in_order() -> None:
    names = [*gpus(2), "NIC0", "NIC1", "NIC2"]
    cells = {(0, 1): "NV18", (0, 3): "PIX", (1, 2): "PXB"}
    legend = "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_3\n  NIC2: mlx5_bond_0\n"
    node = parse(Source("t", topo_m(names, cells, legend=legend)), "topo-m")
    assert [(nic.name, nic.near) for nic in node.nics] == [
        ("mlx5_0", (1,)),
        ("mlx5_3", (0,)),
        ("mlx5_bond_0", ()),
    ]


def test_old_drivers_name_nics_in_the_columns() -> None:
    text = "\tGPU0\tmlx5_0\tCPU Affinity\nGPU0\t X \tPIX\t0-7\nmlx5_0\tPIX\t X \t\n"
    node = parse(Source("t", text), "topo-m")
    assert [(nic.name, nic.near) for nic in node.nics] == [("mlx5_0", (0,))]


def test_cells_and_names_that_run_together() -> None:
    text = topo_m([*gpus(2), "NIC0", "NIC1"], {(0, 1): "NV18", (0, 2): "SYS", (0, 3): "SYS"})
    glued = (
        text.replace("NIC0\tNIC1\tCPU", "NIC0NIC1\tCPU")
        .replace("SYS\tSYS", "SYSSYS")
        .replace("NV18\t X", "NV18 X")
    )
    assert glued != text
    assert parse(Source("t", glued), "topo-m") == parse(Source("t", text), "topo-m")


def test_sockets_come_from_the_cells() -> None:
    cells = {(0, 1): "NODE", (2, 3): "PIX"} | {(i, j): "SYS" for i in (0, 1) for j in (2, 3)}
    assert parse(Source("t", topo_m(gpus(4), cells)), "topo-m").sockets == ("0", "0", "1", "1")


def test_where_all_cells_are_sys_affinities_tell_sockets() -> None:
    text = topo_m(gpus(4), pairs(4, "SYS"))
    rows = text.split("\n")
    assert parse(Source("t", text), "topo-m").sockets == ("0",) * 4
    for i, row in enumerate(rows):
        if row.startswith("GPU") and "X" in row:
            affinity = "0-31\t0" if int(row[3]) % 2 else "32-63\t1"
            rows[i] = "\t".join([*row.split("\t")[:5], affinity])
    assert parse(Source("t", "\n".join(rows)), "topo-m").sockets == ("0", "1", "0", "1")


@pytest.mark.parametrize(
    ("damage", "line", "problem"),
    [
        (lambda t: "\n".join(t.split("\n")[:3]), 3, "GPU2 to GPU3, without rows"),
        (
            lambda t: t.replace("NV4", "NV2", 1),
            2,
            "row GPU0, column GPU1 is NV2, but row GPU1, column GPU0 (line 3) is NV4",
        ),
        (lambda t: t.replace("GPU3\tNV4", "GPU9\tNV4"), 5, "row GPU9 is not a column of line 1"),
        (lambda t: t.replace("NV4\t", "NV4\tNV4\t", 1), 2, "row GPU0 has 5 of the 4 cells"),
        (lambda t: t.replace("GPU2\t", "GPU1\t", 1), 1, "column 'GPU1' is there twice"),
        (
            lambda t: t.replace("\nGPU3", "\n" + t.split("\n")[1] + "\nGPU3"),
            5,
            "duplicate row GPU0 (first in line 2)",
        ),
        (lambda t: t.replace(" X ", "NV4", 1), 2, "X is only allowed on the diagonal"),
        (lambda t: t.replace("NV4", "QPI", 1), 2, "then 'QPI'"),
    ],
)
def test_damage_is_named_with_its_line(damage: object, line: int, problem: str) -> None:
    assert callable(damage)
    text = damage(topo_m(gpus(4), pairs(4, "NV4")).replace("PHB\t", "PHB\t"))
    with pytest.raises(InputError) as caught:
        parse(Source("topo.txt", text), "topo-m")
    assert str(caught.value).startswith(f"topo.txt: line {line}: "), str(caught.value)
    assert problem in str(caught.value)


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


@pytest.mark.parametrize(
    ("before", "gpu", "problem"),
    [
        ("GPU 0: NVIDIA H200 (UUID: GPU-1)\n", "h100-sxm", "the file says NVIDIA H200, not h100-sxm"),
        ("", "mi300x", "the file says NVIDIA's nvidia-smi, not mi300x"),
    ],
)
def test_another_gpu_than_the_file_names_is_refused(
    tmp_path: Path, before: str, gpu: str, problem: str
) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(before + topo_m(gpus(8), {}))
    with pytest.raises(InputError, match=problem):
        import_files([str(path)], ImportOptions(gpu=gpu, pcie="64 GB/s"))
