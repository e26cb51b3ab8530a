"""Physical limits: cables, optics and power by hand, and how they grow."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import ClusterSpec, InputError, build_cluster, cluster_names, load_domain, resolve_cluster
from topology.cables import cable_rows, cables_csv
from topology.changes.overrides import overrides
from topology.exporters import write_topology
from topology.physical import Physical, physical_of_whole
from topology.scale_out import switches_above


def cabled(found: Physical) -> dict[str, tuple[int, int, int]]:
    return {row.fabric: (row.board_links, row.copper_links, row.optical_links) for row in found.cabling}


def limits(name: str) -> Physical:
    return physical_of_whole(resolve_cluster(name))


@pytest.mark.parametrize(
    ("name", "expected", "modules"),
    [
        # 18 links of 72 GPUs, as 5,184 copper cables; nothing leaves the rack
        ("gb200-nvl72", {"nvlink5": (0, 1296, 0)}, 0),
        # two racks: 144 NICs and 8 leaves of 18 uplinks
        ("gb200-nvl72@144", {"nvlink5": (0, 2592, 0), "ib-ndr400": (0, 0, 288)}, 2 * 288),
        ("hgx-h100@16", {"nvlink4": (288, 0, 0), "ib-ndr400": (0, 0, 16 + 8 * 4)}, 2 * 48),
        # eight racks and planes between them: every link leaves its rack
        ("rubin-576", {"nvlink-576": (0, 0, 20736)}, 2 * 20736),
        ("tpu-v5p@8x8x8", {"ici-v5p": (512, 640, 8 * 96 // 2)}, 8 * 96),
        ("trn2-ultra", {"neuronlink-v3": (128, 0, 0), "neuronlink-v3-ring": (0, 64, 0)}, 0),
        ("cm384@16", {"ub-910c": (16 * 14, 0, 0)}, 0),
    ],
)
def test_links_and_their_modules_by_hand(
    name: str, expected: dict[str, tuple[int, int, int]], modules: int
) -> None:
    found = limits(name)
    assert cabled(found) == expected
    assert found.transceivers == sum(row.transceivers for row in found.cabling) == modules
    if name == "gb200-nvl72":
        assert [row.copper_cables for row in found.cabling] == [5184]


@pytest.mark.parametrize(
    ("name", "hosts", "racks", "watts", "share_of", "kg", "kind"),
    [
        ("gb200-nvl72@576", 144, 8, 8 * 132e3, "full rack", 8 * 1360, "assumed"),
        ("gb200-nvl72@76", 19, 2, 76 / 72 * 132e3, "full rack", 2 * 1360, "assumed"),
        ("hgx-h100@64", 8, 2, 81.6e3, "full node", 8 * 130.45, "datasheet"),  # 10.2 kW, four in a rack
        ("cm384@64", 4, 5, 64 / 768 * 559e3, "full domain", None, "measured"),  # 12 racks and 4 of switches
        ("tpu-v5p", 16, 1, None, "no published power for tpu-v5p", None, "measured"),
    ],
)
def test_power_and_weight(
    name: str, hosts: int, racks: int, watts: float | None, share_of: str, kg: float | None, kind: str
) -> None:
    found = limits(name)
    assert (found.hosts, found.racks.count) == (hosts, racks)
    assert share_of in found.power.basis
    for total, rack, figure in (
        (watts, found.rack_power_w, found.power),
        (kg, found.rack_mass_kg, found.mass),
    ):
        assert figure.value == (None if total is None else pytest.approx(total))
        assert rack == (None if total is None else pytest.approx(total / racks))
    assert found.mass.evidence.label == kind


def test_racks_of_hosts_follow_from_the_power_of_a_rack() -> None:
    hosts = resolve_cluster("mi300x@64")
    assert "settings` mi300x.node_power_w" in physical_of_whole(hosts).racks.basis
    (known,) = overrides([hosts], ["mi300x.node_power_w=8 kW", "mi300x.rack_budget_w=25 kW"])
    assert physical_of_whole(known).racks.count == 3
    (whole,) = overrides([resolve_cluster("hgx-h100@1024")], ["hgx-h100.rack_budget_w=0.5x"])
    assert physical_of_whole(whole).racks.count == 64
    own = {"gpu": "h100-sxm", "structure": "mesh", "link": "50 GB/s", "gpus": 8, "gpus_per_node": 8}
    own["rate_checked"] = True
    fabric = {"kind": "leaf-spine", "nic": "400 Gb/s"}
    for more, racks in (({"nodes_per_rack": 1}, 6), ({}, None)):
        mine = resolve_cluster({"domains": [{**own, "count": 6, **more}], "fabric": fabric})
        assert physical_of_whole(mine).racks.count == racks


@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "switches", "optical"),
    [
        ("hgx-h100@16384", {"leaf": 512, "spine": 512, "core": 256}, 49152),
        # three tiers of 64 ports reach 65,536; half as many again have a fourth
        ("hgx-h100@98304", {"leaf": 3072, "spine": 3072, "core": 3072 + 1536}, 4 * 98304),
        # eight racks are one unit of 32 leaves and 9 spines
        ("gb200-nvl72@9216", {"leaf": 512, "spine": 288, "core": 144}, 3 * 9216),
    ],
)
def test_a_spine_plane_counts_as_its_spines_and_cores(
    name: str, switches: dict[str, int], optical: int
) -> None:
    found = limits(name)
    assert {kind: count for kind, count in found.switches.items() if kind != "switch"} == switches
    assert found.optical_links == optical


@pytest.mark.parametrize(("figure", "other"), [("mass", "hgx-h800"), ("power", "tpu-v5p")])
def test_one_unknown_weight_or_power_makes_the_sum_unknown(figure: str, other: str) -> None:
    both = (load_domain("hgx-h100"), load_domain(other))
    spec = ClusterSpec("both", both, resolve_cluster("hgx-h100@16").spec.scale_out)
    found = getattr(physical_of_whole(build_cluster(spec)), figure)
    assert found.value is None
    assert other in found.basis


def test_what_is_broken_is_cabled_still_and_links_that_stand_for_others_are_not_counted() -> None:
    faults = [{"gpu": "d0.n0.g0"}, {"link": ["d1.n0.g0", "d1.s0"]}]
    faulty = resolve_cluster({"name": "x", "domains": [{"part": "hgx-h100", "count": 4}], "broken": faults})
    assert physical_of_whole(faulty) == limits("hgx-h100@32")
    assert [row.texts for row in cable_rows(faulty)] == RAILS
    bundled = limits("helios-72")
    assert [row.counted for row in bundled.cabling] == [False]
    assert (bundled.copper_links, bundled.optical_links, bundled.transceivers) == (0, 0, 0)
    assert not bundled.switches


@settings(deadline=None, max_examples=12)
@given(st.sampled_from(cluster_names()), st.integers(1, 40))
def test_every_link_is_somewhere(name: str, hosts: int) -> None:
    domain = load_domain(name)
    try:
        cluster = resolve_cluster(f"{name}@{hosts * domain.gpus_per_node}")
    except InputError:  # no whole torus or group, or no network between domains is published
        cluster = resolve_cluster(name)
    found = physical_of_whole(cluster)
    counted = sum(row.board_links + row.copper_links + row.optical_links for row in found.cabling)
    kinds = [kind for _, kind in cluster.graph.nodes(data="kind")]
    above = switches_above(cluster)
    assert counted == sum(count for _, _, count in cluster.graph.edges(data="count")) + above.links
    known = sum(kind not in ({"gpu", "switch"} if domain.links_bundled else {"gpu"}) for kind in kinds)
    assert sum(found.switches.values()) == known + sum(above.more.values())
    assert found.gpus == len(cluster.gpus)
    rows = cable_rows(cluster)
    if not domain.links_bundled:
        links = sum(row.links or 0 for row in rows if row.in_graph)
        assert links == sum(count for _, _, count in cluster.graph.edges(data="count"))
        for place, count in (("copper", found.copper_links), ("optical", found.optical_links)):
            assert sum(row.links or 0 for row in rows if row.place == place) == count


# The bill of cables


RAILS = [
    # 4 hosts: 18 links of each GPU on boards; 32 NICs, and as many uplinks of 8 leaves to 4 spine planes
    ("32 GPUs", "18", "16 switch chips", "32 to 40", "576", "25 GB/s", "on board"),
    ("32 GPUs", "1", "8 leaves", "4", "32", "50 GB/s", "optical"),
    ("8 leaves", "4", "4 spine planes", "8", "32", "50 GB/s", "optical"),
]
RACKS = [
    # two racks: scale-up stays in each; a rack has a leaf for each of 4 rails, 18 hosts on it and 9 spines above
    ("144 GPUs", "18", "36 switch chips", "72", "2,592", "50 GB/s", "copper"),
    ("144 GPUs", "1", "8 leaves", "18", "144", "50 GB/s", "optical"),
    ("8 leaves", "18", "9 spine planes", "16", "144", "50 GB/s", "optical"),
]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("hgx-h100@32", RAILS),
        ("gb200-nvl72@144", RACKS),
    ],
)
def test_cables_by_hand(name: str, rows: list[tuple[str, ...]]) -> None:
    assert [row.texts for row in cable_rows(resolve_cluster(name))] == rows


def test_the_table_of_cables_has_what_is_known(tmp_path: Path) -> None:
    write_topology(resolve_cluster("rubin-ultra-nvl144"), tmp_path / "cables.csv")
    (row,) = csv.DictReader((tmp_path / "cables.csv").read_text().splitlines())
    assert (row["from"], row["from_count"], row["links"], row["link_bytes_per_s"]) == ("GPU", "144", "", "")
    lines = cables_csv(resolve_cluster("hgx-h100@32")).splitlines()
    assert lines[3] == "leaf,8,4,4,spine plane,4,8,8,32,50000000000,ib-ndr400,optical"


def test_what_is_in_a_host_is_of_its_domain() -> None:
    gpus = [{"id": f"g{n}", "kind": "gpu", "gpu": "l40s", "domain": f"d{n}", "node": f"h{n}"} for n in (0, 1)]
    inside = [{"id": f"{kind}{n}", "kind": kind, "node": f"h{n}"} for n in (0, 1) for kind in ("nic", "pcie")]
    pairs = [
        pair for n in (0, 1) for pair in ((f"g{n}", f"pcie{n}"), (f"nic{n}", f"pcie{n}"), (f"nic{n}", "leaf"))
    ]
    links = [{"between": list(pair), "count": 1, "rate": "25 GB/s", "latency": "1 us"} for pair in pairs]
    leaf = {"id": "leaf", "kind": "leaf"}
    cluster = resolve_cluster({"name": "x", "nodes": [*gpus, *inside, leaf], "links": links})
    assert [(str(row.near), str(row.far), row.place) for row in cable_rows(cluster, 1)] == [
        ("1 GPU", "1 PCIe switch", "on board"),
        ("1 NIC", "1 PCIe switch", "on board"),
        ("1 NIC", "1 leaf", "optical"),
    ]
