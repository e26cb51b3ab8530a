"""NetBox: cables with rates by interface and hosts by role, in REST's JSON and in CSV, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from topology import InputError, build_cluster
from topology.importers import Imported, ImportOptions, import_files
from topology.importers.netbox import _gigabits

if TYPE_CHECKING:
    from pathlib import Path

ROLES = {"dgx": "gpu-server", "leaf": "leaf-switch", "spine": "spine-switch", "oob": "management"}
End = tuple[str, str]
CABLES: list[tuple[End, End]] = [
    *(((f"dgx-{h}", f"mlx5_{r}"), (f"leaf-{r}", f"swp{h}")) for h in range(2) for r in range(8)),
    *(((f"leaf-{r}", f"swp3{k}"), ("spine-0", f"swp{r * 2 + k}")) for r in range(8) for k in range(2)),
    (("dgx-0", "eno1"), ("oob-0", "swp0")),
]


def term(end: End, kind: str = "dcim.interface") -> dict[str, Any]:
    device = {"id": 1, "name": end[0], "display": end[0]}
    return {"object_type": kind, "object_id": 1, "object": {"id": 1, "device": device, "name": end[1]}}


def cable(a: End, *b: End, status: str = "connected") -> dict[str, Any]:
    return {
        "id": 1,
        "a_terminations": [term(a)],
        "b_terminations": [term(end) for end in b],
        "status": {"value": status, "label": status.title()},
    }


def interface(end: End, kind: str = "infiniband-ndr", **more: object) -> dict[str, Any]:
    return {"id": 1, "device": {"id": 1, "name": end[0]}, "name": end[1], "type": {"value": kind}, **more}


def device(name: str) -> dict[str, Any]:
    return {
        "id": 1,
        "name": name,
        "role": {"id": 1, "slug": ROLES[name.split("-", maxsplit=1)[0]], "name": "x"},
    }


def whole() -> dict[str, list[dict[str, Any]]]:
    ends = [end for pair in CABLES for end in pair]
    return {
        "cables": [cable(a, b) for a, b in CABLES],
        "interfaces": [interface(end) for end in ends],
        "devices": [device(name) for name in dict.fromkeys(name for name, _ in ends)],
    }


def load(folder: Path, *documents: object, **options: Any) -> Imported:
    paths = []
    for number, document in enumerate(documents):
        path = folder / f"part{number}.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        paths.append(str(path))
    return import_files(paths, ImportOptions(**{"gpu": "hgx-h100", **options}))


def is_the_fabric(imported: Imported) -> bool:
    """Whether two hosts of eight NICs are on eight leaves below one spine, all at 400 Gb/s."""
    graph = build_cluster(imported.spec).graph
    kinds = [data["kind"] for _, data in graph.nodes(data=True)]
    outer = [
        data
        for a, b, data in graph.edges(data=True)
        if {"leaf", "spine"} & {graph.nodes[a]["kind"], graph.nodes[b]["kind"]}
    ]
    rates = {data["link_bytes_per_s"] for data in outer}
    return (kinds.count("leaf"), kinds.count("spine"), sum(data["count"] for data in outer), rates) == (
        8,
        1,
        32,
        {50e9},
    )


def test_three_pages_of_rest_are_one_fabric(tmp_path: Path) -> None:
    parts = [{"count": len(rows), "next": None, "results": rows} for rows in whole().values()]
    imported = load(tmp_path, *parts)
    assert is_the_fabric(imported)
    (found,) = imported.files
    assert (found.kind, found.place) == ("netbox", "part0.json and part1.json and part2.json")
    assert any("oob-0" in note for note in found.notes)
    assert not imported.anomalies


def test_one_file_of_all_and_graphql(tmp_path: Path) -> None:
    assert is_the_fabric(load(tmp_path, whole()))
    assert is_the_fabric(
        load(tmp_path, {"data": {f"{key[:-1]}_list": rows for key, rows in whole().items()}})
    )


def test_csv_of_cables_interfaces_and_devices(tmp_path: Path) -> None:
    head = "side_a_device,side_a_type,side_a_name,side_b_device,side_b_type,side_b_name,status"
    rows = [f"{a},dcim.interface,{x},{b},dcim.interface,{y},connected" for (a, x), (b, y) in CABLES]
    cables = "\n".join([head, *rows])
    ends = [end for pair in CABLES for end in pair]
    interfaces = "\n".join(["Device,Name,Type", *(f"{a},{x},NDR (100 Gbps)" for a, x in ends)])
    assert is_the_fabric(load(tmp_path, cables, interfaces))
    assert is_the_fabric(load(tmp_path, cables, nic="400 Gb/s", uplink="400 Gb/s"))
    exported = "\n".join(
        [
            "Device A,Termination A,Device B,Termination B,Status",
            *(f"{a},{x},{b},{y},Connected" for (a, x), (b, y) in CABLES),
        ]
    )
    assert is_the_fabric(load(tmp_path, exported, interfaces))


def test_interfaces_know_both_ends_through_patch_panels(tmp_path: Path) -> None:
    rows = [
        interface(a, connected_endpoints=[{"id": 1, "device": {"id": 1, "name": b[0]}, "name": b[1]}])
        for pair in CABLES
        for a, b in (pair, pair[::-1])
    ]
    assert is_the_fabric(load(tmp_path, {"interfaces": rows}))


def test_a_port_that_breaks_out_gives_each_link_its_part(tmp_path: Path) -> None:
    ends = [((f"dgx-{h}", f"mlx5_{r}"), (f"leaf-{r}", f"swp{h}")) for h in range(2) for r in range(8)]
    broken_out = [
        cable((f"leaf-{r}", "swp0"), ("dgx-0", f"mlx5_{r}"), ("dgx-1", f"mlx5_{r}")) for r in range(8)
    ]
    trunks = [cable(a, b) for a, b in CABLES if a[0].startswith("leaf")]
    interfaces = [interface(end) for pair in CABLES for end in pair if end[1] != "swp0"]
    interfaces += [interface((f"leaf-{r}", "swp0"), "800gbase-x-osfp") for r in range(8)]
    interfaces.append(interface(("spine-0", "swp0")))
    assert len(ends) == 16
    assert is_the_fabric(load(tmp_path, {"cables": [*broken_out, *trunks], "interfaces": interfaces}))


def test_what_carries_nothing_is_left_out_and_told(tmp_path: Path) -> None:
    parts = whole()
    parts["cables"] += [
        cable(("dgx-0", "mlx5_9"), ("leaf-0", "swp9"), status="planned"),
        {**cable(("pdu", "1"), ("dgx-0", "psu")), "a_terminations": [term(("pdu", "1"), "dcim.poweroutlet")]},
        {**cable(("p", "1"), ("leaf-0", "swp8")), "a_terminations": [term(("p", "1"), "dcim.frontport")]},
        {**cable(("p", "1")), "a_terminations": []},
    ]
    imported = load(tmp_path, parts)
    assert len(imported.anomalies) == 3
    assert is_the_fabric(imported)


def test_ends_of_unlike_types_run_at_the_slower(tmp_path: Path) -> None:
    parts = whole()
    parts["interfaces"][0]["type"] = {"value": "200gbase-x-qsfp56"}
    imported = load(tmp_path, parts)
    assert any("dgx-0 mlx5_0 is of 200 Gb/s" in line for line in imported.anomalies)


@pytest.mark.parametrize(
    ("kind", "rate"),
    [
        ("400gbase-x-osfp", 400),
        ("OSFP (400GE)", 400),
        ("1.6tbase-dr8", 1600),
        ("1000base-t", 1),
        ("infiniband-xdr", 800),
        ("HDR (50 Gbps)", 200),
        ("lag", None),
    ],
)
def test_rates_of_types(kind: str, rate: float | None) -> None:
    assert _gigabits(kind) == rate


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (
            {"count": 1, "next": "http://x/?offset=50", "results": [cable(*CABLES[0])]},
            "is one page of several",
        ),
        ({"cables": [cable(("x", "a"), ("y", "b"))]}, "does not say what x, y is"),
        ({"cables": [cable(("dgx-0", "a"), ("dgx-1", "b"))]}, "does not say what|joins two hosts"),
        ({"cables": [cable(*CABLES[0]), cable(CABLES[0][0], ("leaf-9", "s"))]}, "is cabled twice"),
        ({"devices": [device("dgx-0")]}, "has no cable between two interfaces"),
        ("Device,Name,Type\ndgx-0,mlx5_0\n", "2 cells for 3 columns"),
        ('Device,Name,Type\n"dgx-0,mlx5_0,x\n', "not valid CSV|cells for 3 columns"),
        ("Device,Name,Type,Name\n", "has the column name twice"),
    ],
)
def test_what_is_refused(tmp_path: Path, document: object, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        load(tmp_path, document)
