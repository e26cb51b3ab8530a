"""Pictures of every structure and fabric: few parts, each with its count, and the same in any order of asking."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml

from topology import InputError, resolve_cluster
from topology.draw import TrafficOverlay, draw_cluster
from topology.draw.fold import Fold
from topology.routes import link_loads, pattern_traffic

pytestmark = pytest.mark.wide

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"
H100 = {"part": "hgx-h100"}


class Picture:
    """One drawing, read back."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.root = ET.fromstring(self.text)  # noqa: S314 - written by ourselves
        self.words = [(t.text or "").replace("\u00a0", " ") for t in self.root.iter(f"{SVG}text")]

    def count(self, kind: str) -> int:
        return sum(group.get("class") == kind for group in self.root.iter(f"{SVG}g"))

    def edge_colours(self) -> list[str]:
        groups = [g for g in self.root.iter(f"{SVG}g") if g.get("class") == "edge"]
        return [path.get("stroke", "") for g in groups for path in g.iter(f"{SVG}path")]

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


TORUS = {
    "gpu": "h100-sxm",
    "structure": "torus",
    "shape": [4, 4, 4],
    "wrap": True,
    "gpus_per_node": 4,
    "link": "100 GB/s",
    "link_kind": "ici",
}
MESH = {
    "gpu": "h100-sxm",
    "gpus": 8,
    "gpus_per_node": 8,
    "structure": "mesh",
    "link": "64 GB/s",
    "link_kind": "xgmi",
}
CLUSTERS: list[dict[str, Any]] = [
    {"domains": [MESH]},
    {"domains": [TORUS]},
    {"domains": [{**TORUS, "shape": [16, 16, 16]}]},
    {"domains": [{**TORUS, "shape": [4, 8], "wrap": False}]},
    {"domains": [{"part": "cm384"}]},
    {"domains": [{**H100, "count": 64}], "fabric": fabric("leaf-spine", nodes_per_leaf=4, spines=4)},
    {"domains": [{**H100, "count": 512}], "fabric": fabric("fat-tree")},
    {
        "domains": [{**H100, "count": 320}],
        "fabric": fabric("dragonfly", routers_per_group=8, nodes_per_router=2),
    },
    {
        "domains": [
            {"part": "gb200-nvl72", "count": 2},
            {**H100, "count": 32},
            {"part": "gb200-nvl72", "gpus": 64},
        ],
        "fabric": fabric("rail"),
    },
    {
        "domains": [{"part": "tpu-v5p"}, {"part": "mi300x", "count": 4}, {"part": "cm384"}],
        "fabric": fabric("leaf-spine", nodes_per_leaf=8, spines=2),
    },
]


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


def test_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    path = write(tmp_path, **raw(without=("r2h1g3 r2-nvs1",)))
    code = (
        "import sys; from topology import resolve_cluster; from topology.draw import dot_source\n"
        "cluster = resolve_cluster(sys.argv[1])\n"
        "for level in ('auto', 'gpu', 'd2'): print(dot_source(cluster, level=level))"
    )
    outputs = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code, str(path)]
        done = subprocess.run(command, check=True, cwd=ROOT, env=environment, capture_output=True, text=True)
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert "r0h0g0" in outputs.pop()


def test_a_raw_host_is_drawn_node_by_node(tmp_path: Path) -> None:
    nodes: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    for i in range(4):
        nodes.append(
            {"id": f"GPU{i}", "kind": "gpu", "domain": "n1", "node": "n1", "gpu": "h100-sxm", "rail": i}
        )
        nodes.append({"id": f"mlx5_{i}", "kind": "nic", "node": "n1", "rail": i})
        links += [
            {
                "between": [f"GPU{i}", "nvs0"],
                "count": 5,
                "rate": "25 GB/s",
                "latency": "1 us",
                "fabric": "nvlink4",
            },
            {"between": [f"GPU{i}", f"plx{i // 2}"], "rate": "64 GB/s", "latency": "1 us", "fabric": "pcie5"},
            {
                "between": [f"mlx5_{i}", f"plx{i // 2}"],
                "rate": "64 GB/s",
                "latency": "1 us",
                "fabric": "pcie5",
            },
        ]
    nodes += [{"id": "nvs0", "kind": "switch", "domain": "n1"}, {"id": "cpu0", "kind": "host", "node": "n1"}]
    nodes += [{"id": f"plx{i}", "kind": "pcie", "node": "n1"} for i in range(2)]
    links += [
        {"between": [f"plx{i}", "cpu0"], "rate": "64 GB/s", "latency": "1 us", "fabric": "pcie5"}
        for i in range(2)
    ]
    picture = draw(tmp_path, nodes=nodes, links=links)
    assert {"GPU0", "mlx5_3", "plx1", "cpu0", "nvs0", "2 PCIe switches"} <= set(picture.words)
    assert picture.count("edge") == len(links)


def test_every_link_is_drawn_or_counted(tmp_path: Path) -> None:
    ring = draw(tmp_path, domains=[{**TORUS, "shape": [4, 4, 8]}])
    assert {"to z = 0", "to z = 7"} <= set(ring.words)
    assert ring.has("z: ring of 8, 2 x 100 GB/s a GPU, 128 links in all")
    groups = fabric("dragonfly", routers_per_group=4, nodes_per_router=2)
    assert draw(tmp_path, domains=[{**H100, "count": 32}], fabric=groups).has("g0 - g1: 21, g0 - g2: 22")
    tiers = draw(tmp_path, domains=[{"part": "cm384"}])
    assert tiers.has("84 chips, d0.n0.s0 to d0.n11.s6")
    assert tiers.has("112 switch chips in 7 planes, 5,376 links to the first tier")


def test_the_fold_finds_identical_parts() -> None:
    folded = Fold(resolve_cluster("gb200-nvl72@288"))
    assert len(folded.pods) == 4
    assert len({pod.shape for pod in folded.pods}) == 1
    assert len(set(folded.domain_shapes)) == 1
    assert all(leaf.up.count == leaf.down.count == 18 for pod in folded.pods for leaf in pod.leaves)
    partial = Fold(resolve_cluster("gb200-nvl72@116"))
    assert len({pod.shape for pod in partial.pods}) == 2
