"""Drawings: right, small, the same every time, with letters, written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goldens import require_text
from helpers import link_loads
from topology import InputError, build_cluster, resolve_cluster
from topology.draw import Overlay, TrafficOverlay, dot_source, draw_cluster
from topology.draw.generations import generations_source
from topology.draw.overlay import Ramp
from topology.routes import pattern_traffic

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def draw_svg(
    what: str | dict[str, Any], folder: Path, level: str = "auto", overlay: Overlay | None = None
) -> ET.Element:
    path = folder / "x.svg"
    draw_cluster(resolve_cluster(what), path, level=level, overlay=overlay)
    return ET.fromstring(path.read_bytes())  # noqa: S314 - written by ourselves


def texts(svg: ET.Element) -> list[str]:
    return [(text.text or "").replace("\u00a0", " ") for text in svg.iter(f"{SVG}text")]


def groups(svg: ET.Element, kind: str) -> int:
    return sum(group.get("class") == kind for group in svg.iter(f"{SVG}g"))


def traffic_overlay(what: str | dict[str, Any], pattern: str) -> TrafficOverlay:
    cluster = resolve_cluster(what)
    return TrafficOverlay(link_loads(cluster, pattern_traffic(pattern, len(cluster.gpus), 1e9)), pattern)


GPU_FAULTS: list[dict[str, Any]] = [{"gpu": "d0.n0.g1", "factor": 0.7}, {"gpu": "d0.n0.g2"}]
LINK_FAULTS: list[dict[str, Any]] = [
    {"link": ["d5.n3.g1", "d5.s7"], "factor": 0.25},
    {"link": ["f.p5.l2", "f.s3"]},
]
CABINET = {"part": "tpu-8i", "gpus": 96}
DRAWN: list[tuple[str | dict[str, Any], str, str]] = [
    *(
        (name, "auto", "")
        for name in ("hgx-h100@32", "cm384", "tpu-v5e", "tpu-8i", "rubin-576", "hgx-h100@16384")
    ),
    *((name, "gpu", "") for name in ("gb200-nvl72", "tpu-v5p", "helios-72", "trn2-ultra")),
    ({"domains": [{"part": "gb200-nvl72", "count": 16}], "broken": LINK_FAULTS}, "auto", ""),
    (
        {"domains": [CABINET], "broken": [{"gpu": "d0.n20.g1"}, {"link": ["d0.n16.g0", "d0.n16.g1"]}]},
        "auto",
        "",
    ),
    *(
        ({"domains": [{"part": part}], "broken": GPU_FAULTS}, "gpu", "ring")
        for part in ("mi300x", "tpu-v5p", "cm384")
    ),
    *((name, level, "all-to-all") for name, level in (("hgx-h100@512", "auto"), ("gb200-nvl72@144", "d1"))),
]
FABRICS: list[dict[str, Any]] = [
    {"kind": "leaf-spine", "nodes_per_leaf": 8, "spines": 2},
    {"kind": "rail", "nodes_per_pod": 2, "nics_per_gpu": 2, "planes": 2},
    {"kind": "dragonfly", "nodes_per_router": 2, "routers_per_group": 2},
    {"kind": "fat-tree", "nodes_per_leaf": 1, "leaves_per_pod": 2, "spines": 2},
]
MIXED = [{"part": "hgx-h100", "count": 12}, {"part": "hgx-b200", "count": 4}]
for sizes in FABRICS:
    out = {"kind": sizes["kind"], "nic": "400 Gb/s", **sizes}
    DRAWN.append(({"domains": MIXED, "fabric": out}, "auto", "incast"))
TO_SCALE = ("hgx-h100", "gb200-nvl72@144", "rubin-576", "tpu-v5p", "trn2-ultra", "hgx-h100@16")


def test_pictures_are_as_they_were_looked_at() -> None:
    """Each with the digest of its source: whoever changes a picture looks at it and writes the digests anew."""
    rows = []
    for part, level, pattern in DRAWN:
        what = part if isinstance(part, str) else {"name": "mine", **part}
        traffic = traffic_overlay(what, pattern) if pattern else None
        source = dot_source(resolve_cluster(what), level=level, traffic=traffic)
        rows.append(f"{what} {level} {pattern}: {hashlib.sha256(source.encode()).hexdigest()[:16]}\n")
    source = generations_source([resolve_cluster(name) for name in TO_SCALE])
    rows.append(f"to one scale: {hashlib.sha256(source.encode()).hexdigest()[:16]}\n")
    require_text("drawings", "".join(rows))


@pytest.mark.parametrize(("name", "level"), [("helios-72", "gpu"), ("rubin-ultra-nvl144", "domain")])
def test_a_number_that_nobody_published_is_not_drawn(name: str, level: str, tmp_path: Path) -> None:
    words = " | ".join(texts(draw_svg(name, tmp_path, level)))
    assert "number not published" in words
    assert "cables not published" in words
    assert not re.search(r"\b(1|2) (switch )?(chips?|links?)\b", words)


def test_three_kinds_of_file_and_no_other(tmp_path: Path) -> None:
    cluster = resolve_cluster("hgx-h100")
    for name in ("x.jpg", "x", ".svg", "missing/x.svg"):
        with pytest.raises(InputError):
            draw_cluster(cluster, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    for suffix, start in {".svg": b"<?xml", ".png": b"\x89PNG", ".PDF": b"%PDF"}.items():
        draw_cluster(cluster, tmp_path / f"x{suffix}")
        content = (tmp_path / f"x{suffix}").read_bytes()
        assert content.startswith(start)
        assert b"CreationDate" not in content


@pytest.mark.parametrize("name", ["hgx-h100", "rubin-576", "gb200-nvl72@576"])
def test_an_overlay_colours_every_gpu(name: str, tmp_path: Path) -> None:
    cluster = resolve_cluster(name)
    gpus = len(cluster.gpus)
    values, labels = [1 + i / gpus for i in range(gpus)], [str(3 + i % 2) for i in range(gpus)]
    svg = draw_svg(name, tmp_path, overlay=Overlay(values, labels, "load over mean"))
    assert "load over mean" in texts(svg)
    text = (tmp_path / "x.svg").read_text()
    assert len(set(re.findall(r"<title>(d\d+\.n\d+\.g\d+): \d, [\d.]+</title>", text))) == gpus
    assert "<a " not in text
    assert Ramp([0, 1]).fill(1.0) in text
    assert len(text) < 1_000_000


def test_an_overlay_of_some_gpus_leaves_the_others_empty() -> None:
    some = Overlay([1.0, 2.0], ["a", "b"], "load", details=[["c", "d"]], tags=["S0", "S1"])
    over = some.over(["g2", "g0"], ["g0", "g1", "g2"])
    assert (over.values, over.labels, over.tags) == ([2.0, 0.0, 1.0], ["b", "", "a"], ["S1", "", "S0"])
    assert over.details == [["d", "", "c"]]
    assert Overlay(None, ["a"], "").over(["g0"], ["g0", "g1"]).tags == ()


def test_overlays_that_cannot_be(tmp_path: Path) -> None:
    cluster = resolve_cluster("hgx-h100")
    for values, labels in (([1.0] * 7, ["4"] * 8), ([1.0] * 8, ["4"] * 9), ([float("nan")] * 8, ["4"] * 8)):
        with pytest.raises(InputError, match="overlay"):
            dot_source(cluster, overlay=Overlay(values, labels, "x"))
    both = Overlay([1.0] * 8, [""] * 8, "x")
    with pytest.raises(InputError, match="two pictures"):
        dot_source(cluster, overlay=both, traffic=traffic_overlay("hgx-h100", "ring"))


def test_names_cannot_break_the_picture(tmp_path: Path) -> None:
    spec = resolve_cluster("hgx-h100@16").spec
    draw_cluster(build_cluster(replace(spec, name='<b>& "x" \x07 ]]> \\N')), tmp_path / "x.svg")
    words = texts(ET.fromstring((tmp_path / "x.svg").read_bytes()))  # noqa: S314 - written by ourselves
    assert words[0].startswith('<b>& "x"  ]]> \\N: 2 x HGX H100')
    nodes: list[dict[str, Any]] = [{"id": "nvs", "kind": "switch", "domain": "d"}]
    for host in ("a:b<c>:", "plain"):
        place = {"kind": "gpu", "gpu": "gb200", "domain": "d", "node": host}
        nodes += [{"id": f"{host}g{g}", **place} for g in range(2)]
    links = [{"between": [node["id"], "nvs"], "rate": "900 GB/s"} for node in nodes[1:]]
    assert "a:b<c>:" in " | ".join(texts(draw_svg({"nodes": nodes, "links": links}, tmp_path)))


LETTERS = """
import sys
from pathlib import Path
from topology.draw.canvas import Canvas
from topology.draw.render import render
for word in ("bcdefgh", "hgfedcb"):
    Path(sys.argv[1], word + ".png").write_bytes(render(Canvas(word, [word]).source(), "png"))
"""


@pytest.mark.wide
def test_letters_without_any_installed_font(tmp_path: Path) -> None:
    """Without the bundled font every letter would be the same empty box."""
    (tmp_path / "fonts.conf").write_text("<fontconfig></fontconfig>")
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME"), "/nonexistent")
    fonts = {"FONTCONFIG_FILE": str(tmp_path / "fonts.conf"), "FONTCONFIG_PATH": str(tmp_path)}
    environment = {"PATH": os.defpath, "PYTHONPATH": str(ROOT), **nowhere, **fonts}
    command = [sys.executable, "-c", LETTERS, str(tmp_path)]
    ended = subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.stderr == ""
    assert (tmp_path / "bcdefgh.png").read_bytes() != (tmp_path / "hgfedcb.png").read_bytes()


def test_what_can_be_lost_has_its_id_and_links_say_their_rate(tmp_path: Path) -> None:
    rack = draw_svg("gb200-nvl72", tmp_path)
    named = [(group.get("data-kind"), group.get("data-id")) for group in rack.iter(f"{SVG}g")]
    cluster = resolve_cluster("gb200-nvl72")
    assert {name for kind, name in named if kind == "gpu"} == {gpu.id for gpu in cluster.gpus}
    assert {name for kind, name in named if kind == "node"} == {gpu.node for gpu in cluster.gpus}
    assert [name for kind, name in named if kind == "rack"] == ["d0.r0"]
    titles = [title.text or "" for title in rack.iter(f"{SVG}title")]
    assert "72 x 50 GB/s = 3.6 TB/s each way" in titles
    assert not [text for text in titles if text in ("rackplan", "band", "words", "title")]
    eight = draw_svg("gb200-nvl72@576", tmp_path)
    domains = [group.get("data-id") for group in eight.iter(f"{SVG}g") if group.get("data-kind") == "domain"]
    assert domains == ["d0"]  # the others are alike


def gpus_drawn(root: ET.Element, word: str) -> int:
    """GPUs that have a box, working or not, and those that words count."""
    boxes = set()
    for group in root.iter(f"{SVG}g"):
        title = group.findtext(f"{SVG}title", "")
        if group.get("data-kind") == "gpu" or title.endswith(": out of service"):
            boxes.add(group.get("data-id") or title.partition(":")[0])
    number = rf"(?:[\d,]+ of )?([\d,]+) {word}s?"
    counted = [
        rf"^[\d,]+ more (?:identical|different) rows?: {number}$",
        rf"^and .*: {number}$",
        rf"more groups? of {number}, alike",
        rf"^([\d,]+) more {word}s?, .* in all$",
    ]
    if any(re.search("alike|identical", text) for text in texts(root)):
        counted.append(f"^{number}$")  # under "x 3 alike"
    matches = (next(filter(None, (re.search(form, text) for form in counted)), None) for text in texts(root))
    return len(boxes) + sum(int(match[1].replace(",", "")) for match in matches if match is not None)


GPUS: list[dict[str, Any]] = [{"gpu": "d3.n0.g2"}, {"gpu": "d3.n0.g5"}, {"gpu": "d7.n0.g1"}]
MORE: list[dict[str, Any]] = [{"node": "d1.n0"}, {"gpu": "d9.n0.g0", "factor": 0.5}]
RACKS: list[dict[str, Any]] = [{"gpu": "d3.n2.g2"}, {"node": "d5.n17"}, {"link": ["d6.n4.g1", "d6.s5"]}]
ONE: list[dict[str, Any]] = [{"gpu": "d0.n3.g1"}, {"gpu": "d0.n14.g0"}, {"gpu": "d0.n9.g0", "factor": 0.7}]


@pytest.mark.parametrize(
    ("part", "count", "fabric", "broken"),
    [
        ("hgx-h100", 16, {}, GPUS),
        *(("hgx-h100", 16, fabric, [*GPUS, *MORE]) for fabric in FABRICS),
        ("hgx-h100", 128, {}, [*GPUS, *MORE, {"node": "d120.n0"}]),
        ("gb200-nvl72", 16, {}, RACKS),
        ("rubin-576", 1, {}, ONE),
        ("cm384", 2, {}, ONE),
        ("tpu-v5e", 2, {}, ONE),
    ],
)
def test_gpus_in_boxes_and_in_words_are_all(
    part: str, count: int, fabric: dict[str, Any], broken: list[dict[str, Any]], tmp_path: Path
) -> None:
    what: dict[str, Any] = {"name": "x", "domains": [{"part": part, "count": count}], "broken": broken}
    what |= {"fabric": {**fabric, "nic": "400 Gb/s"}} if fabric else {}
    spec = resolve_cluster(what).spec
    svg = draw_svg(what, tmp_path)
    assert gpus_drawn(svg, spec.noun) == spec.gpus
    assert 1 < groups(svg, "node") <= 60  # never a hairball
    assert groups(svg, "edge") <= 100
    # Letters have at least 9 points on a screen of 1,440 pixels: at 100 % one point is 4/3 pixels.
    sizes = {float(text.get("font-size", "0")) for text in svg.iter(f"{SVG}text")}
    assert min(sizes) * min(4 / 3, 1440 / float(svg.get("width", "").removesuffix("pt"))) >= 12
