"""Pictures of every structure and fabric: few parts, each with its count, and the same in any order of asking."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml

from topology import InputError, resolve_cluster
from topology.draw import TrafficOverlay, draw_cluster
from topology.routes import link_loads, pattern_traffic

pytestmark = pytest.mark.wide

SVG = "{http://www.w3.org/2000/svg}"


class Picture:
    """One drawing, read back."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.root = ET.fromstring(self.text)  # noqa: S314 - written by ourselves
        self.words = [(t.text or "").replace("\u00a0", " ") for t in self.root.iter(f"{SVG}text")]

    def count(self, kind: str) -> int:
        return sum(group.get("class") == kind for group in self.root.iter(f"{SVG}g"))

    def has(self, part: str) -> bool:
        return any(part in word for word in self.words)


def write(folder: Path, **content: Any) -> Path:
    path = folder / "c.yaml"
    path.write_text(yaml.safe_dump({"name": "c", **content}), encoding="utf-8")
    return path


def draw(folder: Path, level: str = "auto", traffic: str | None = None, **content: Any) -> Picture:
    cluster = resolve_cluster(str(write(folder, **content)))
    overlay = None
    if traffic is not None:
        loads = link_loads(cluster, pattern_traffic(traffic, len(cluster.gpus), 1e9))
        overlay = TrafficOverlay(loads, traffic)
    draw_cluster(cluster, folder / "c.svg", level=level, traffic=overlay)
    return Picture(folder / "c.svg")


def fabric(kind: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "nic": "400 Gb/s", **more}


def test_every_domain_can_be_opened(tmp_path: Path) -> None:
    content: dict[str, Any] = {
        "domains": [{"part": "tpu-v5p"}, {"part": "mi300x"}],
        "fabric": fabric("leaf-spine", nodes_per_leaf=8, spines=2),
    }
    assert draw(tmp_path, "d0", **content).has("Drawn here: domain d0 of 2")
    mesh = draw(tmp_path, "d1", **content)
    assert mesh.count("edge") == 28
    assert mesh.has("d1.n0.g7")
    with pytest.raises(InputError, match="d0 to d1"):
        draw(tmp_path, "d2", **content)


def raw(*, without: tuple[str, ...] = (), racks: int = 6, spines: int = 3) -> dict[str, Any]:
    """Racks of 4 hosts of 4 GPUs on 2 chips, a leaf for each rail of a rack; the links ``without`` are missing."""
    nodes: list[dict[str, Any]] = [{"id": f"spine{s}", "kind": "spine"} for s in range(spines)]
    links: list[dict[str, Any]] = []

    def link(a: str, b: str, rate: str) -> None:
        if f"{a} {b}" not in without:
            links.append({"between": [a, b], "count": 1, "rate": rate, "latency": "1 us", "fabric": rate})

    for r in range(racks):
        nodes += [{"id": f"r{r}-nvs{s}", "kind": "switch", "domain": f"rack{r}"} for s in range(2)]
        for rail in range(4):
            nodes.append({"id": f"LEAF-{rail}-{r}", "kind": "leaf", "rail": rail})
            for s in range(spines):
                link(f"LEAF-{rail}-{r}", f"spine{s}", "50 GB/s")
        for h in range(4):
            for g in range(4):
                name = f"r{r}h{h}g{g}"
                host = {"domain": f"rack{r}", "node": f"r{r}h{h}", "gpu": "gb200", "rail": g}
                nodes.append({"id": name, "kind": "gpu", **host})
                for s in range(2):
                    link(name, f"r{r}-nvs{s}", "450 GB/s")
                link(name, f"LEAF-{g}-{r}", "50 GB/s")
    return {"nodes": nodes, "links": links}


def test_ids_may_hold_any_sign(tmp_path: Path) -> None:
    content = json.loads(json.dumps(raw(racks=2)).replace("r0h1", "a:b<c>:"))
    picture = draw(tmp_path, **content)
    assert picture.has("a:b<c>:")
    opened = draw(tmp_path, "d0", **content)
    assert opened.has("a:b<c>:")
    assert opened.count("edge") == 4 + 1  # hosts, and their switches


def test_all_gpus_of_an_imported_host_are_drawn(tmp_path: Path) -> None:
    """Sixteen GPUs and as many NICs under PCIe switches, all GPUs on twelve chips: more than a screen is wide."""
    nodes: list[dict[str, Any]] = [{"id": f"s{s}", "kind": "switch", "domain": "h"} for s in range(12)]
    links: list[list[str]] = [["c0", "c1"]]
    nodes += [{"id": f"c{c}", "kind": "host", "node": "h"} for c in range(2)]
    for p in range(8):
        nodes.append({"id": f"p{p}", "kind": "pcie", "node": "h"})
        links.append([f"c{p // 4}", f"p{p}"])
    for g in range(16):
        nodes.append({"id": f"g{g}", "kind": "gpu", "domain": "h", "node": "h", "gpu": "h100"})
        nodes.append({"id": f"n{g}", "kind": "nic", "node": "h"})
        links += [[f"p{g // 2}", f"g{g}"], [f"p{g // 2}", f"n{g}"], *([f"g{g}", f"s{s}"] for s in range(12))]
    rate = {"count": 1, "rate": "37.5 GB/s", "latency": "1 us", "fabric": "any"}
    content = {"nodes": nodes, "links": [{"between": ends, **rate} for ends in links]}
    picture = draw(tmp_path, **content)
    assert {f"g{g}" for g in range(16)} | {f"n{g}" for g in range(16)} <= set(picture.words)
    assert picture.has("s0 to")
    assert not picture.has("Drawn here")
    assert picture.count("node") <= 60
    assert picture.count("edge") <= 100


@pytest.mark.parametrize("per_node", [16, 8])
def test_a_full_mesh_of_sixteen_is_drawn_whole_whatever_its_hosts(tmp_path: Path, per_node: int) -> None:
    domain = {"gpu": "mi300x", "structure": "mesh", "gpus": 16, "gpus_per_node": per_node, "link": "30 GB/s"}
    for level in ("auto", "gpu"):
        picture = draw(tmp_path, level, domains=[domain])
        assert {f"GPU {g}" for g in range(16)} <= set(picture.words)
        assert not picture.has("Drawn here")


def test_a_large_mesh_has_a_box_for_each_gpu_that_is_drawn_and_no_switch_chips(tmp_path: Path) -> None:
    domain = {"gpu": "mi300x", "structure": "mesh", "gpus": 40, "gpus_per_node": 8, "link": "12 GB/s"}
    picture = draw(tmp_path, "gpu", domains=[domain])
    assert picture.has("4 more hosts of the domain, with the same links")
    assert [word for word in picture.words if word.startswith("GPU ")] == [f"GPU {g}" for g in range(8)]
    assert not draw(tmp_path, "domain", domains=[domain]).has("switch chip")


def test_gpus_that_pcie_alone_joins_are_not_called_linked_directly(tmp_path: Path) -> None:
    nodes = [{"id": f"g{g}", "kind": "gpu", "domain": "h", "node": "h", "gpu": "h100"} for g in range(16)]
    nodes.append({"id": "c", "kind": "host", "node": "h"})
    rate = {"rate": "64 GB/s", "latency": "1 us"}
    links = [{"between": ["c", f"g{g}"], **rate} for g in range(16)]
    for level in ("auto", "domain"):
        picture = draw(tmp_path, level, nodes=nodes, links=links)
        assert picture.count("edge") == 16
        assert not picture.has("connected directly")


def test_groups_of_a_dragonfly_have_an_arc_for_each_two(tmp_path: Path) -> None:
    fabric = {"kind": "dragonfly", "nic": "200 Gb/s", "nodes_per_router": 4, "routers_per_group": 4}
    picture = draw(tmp_path, domains=[{"part": "gh200-nvl4", "count": 64}], fabric=fabric)
    assert picture.count("edge") == 6 + 4  # four groups, each with a bundle to its hosts
    counts = [int(word.removesuffix(" links")) for word in picture.words if re.fullmatch(r"\d+ links", word)]
    assert len(counts) == 6
    assert sum(counts) == 128
    assert {f"r{router}" for router in range(4)} <= set(picture.words)


def test_leaves_that_are_linked_to_each_other_show_it(tmp_path: Path) -> None:
    nodes: list[dict[str, Any]] = [{"id": f"l{leaf}", "kind": "leaf"} for leaf in range(5)]
    ends = [(f"l{a}", f"l{b}") for a in range(5) for b in range(a)]
    for h in range(10):
        nodes += [{"id": f"s{h}", "kind": "switch", "domain": f"h{h}"}]
        for g in (f"h{h}.g{number}" for number in range(4)):
            nodes.append({"id": g, "kind": "gpu", "domain": f"h{h}", "node": f"h{h}", "gpu": "h100"})
            ends += [(g, f"s{h}"), (g, f"l{h // 2}")]
    links = [{"between": [*pair], "rate": "50 GB/s", "latency": "1 us", "count": 1} for pair in ends]
    picture = draw(tmp_path, "fabric", nodes=nodes, links=links, rate_checked=True)
    assert picture.has("leaves connected directly, without switches")
    assert picture.has("1 link between any two leaves, 10 pairs; total 500 GB/s each way")
    assert picture.has("4 links")  # of the column that is drawn to that of the rest, as one arc
    assert picture.count("edge") == 1 + 2
