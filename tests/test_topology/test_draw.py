"""Drawings: right, small, the same every time, with letters, written whole or not at all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from topology import InputError, build_cluster, cluster_names, resolve_cluster
from topology.draw import Overlay, dot_source, draw_cluster
from topology.draw.overlay import Ramp

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


def test_links_of_a_torus_are_bars_in_a_plane_and_a_line_to_the_next(tmp_path: Path) -> None:
    svg = draw_svg("tpu-v5p", tmp_path)
    assert groups(svg, "edge") == 3 + 2  # along z, that which wraps round at both ends
    assert texts(svg).count("16 x 100 GB/s") == 4
    ends = [tip.text for tip in svg.iter(f"{SVG}title") if " - " in (tip.text or "")]
    assert len(set(ends)) == 2 * 64  # along x and y
    assert len(ends) == 2 * (64 + 16)  # those that wrap round are drawn at both ends


def test_each_level_of_a_nested_domain_is_a_circle(tmp_path: Path) -> None:
    svg = draw_svg("tpu-8i", tmp_path)
    # a ring of four, each two of eight boards, and of 630 pairs of groups those of the first
    assert groups(svg, "edge") == 4 + 28 + 35
    words = texts(svg)
    assert "group 0 of 36" in words
    assert any(text.startswith("Level 2: 8 groups of 4 TPUs: 16 pairs with 2 x 200 GB/s") for text in words)
    # what is wrong is in the group that is drawn
    faults = {
        "name": "mine",
        "domains": [{"part": "tpu-8i", "gpus": 64}],
        "broken": [{"gpu": "d0.n20.g1"}, {"link": ["d0.n16.g0", "d0.n16.g1"]}],
    }
    words = texts(draw_svg(faults, tmp_path))
    assert {"out", "group 1 of 2", "group 8 of 16", "Out of service: d0.n20.g1"} <= {*words}


@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "level"),
    [(name, "auto") for name in (*cluster_names()[::4], "cm384", "tpu-v7@4x4x8", "hgx-h100@100000")]
    + [("gb200-nvl72", "gpu"), ("vr-nvl72", "gpu"), ("rubin-576", "gpu"), ("hgx-h100", "domain")]
    + [(n, "auto") for n in ("gb200-nvl72@576", "rubin-576@1728", "hgx-h100@16384")]
    + [
        ("gb200-nvl72@116", "auto"),
        ("gb200-nvl72@44", "auto"),
        ("gb200-nvl72@288", "domain"),
        ("hgx-h100@16", "gpu"),
    ],
)
def test_never_a_hairball(name: str, level: str, tmp_path: Path) -> None:
    svg = draw_svg(name, tmp_path, level)
    assert 1 < groups(svg, "node") <= 60
    flat = name == "tpu-v6e"  # one plane of a torus: its links are bars of the grid
    assert (0 if flat else 1) <= groups(svg, "edge") <= 100
    assert (tmp_path / "x.svg").stat().st_size < 1_000_000
    # Letters have at least 9 points on a screen of 1,440 pixels: at 100 % one point is 4/3 pixels.
    sizes = {float(text.get("font-size", "0")) for text in svg.iter(f"{SVG}text")}
    assert min(sizes) * min(4 / 3, 1440 / float(svg.get("width", "").removesuffix("pt"))) >= 12
    assert {text.get("font-family") for text in svg.iter(f"{SVG}text")} == {None}  # all have the drawing's
    families = {group.get("font-family") for group in svg.iter(f"{SVG}g")} - {None}
    assert families == {"DejaVu Sans, Verdana, sans-serif"}
    first = next(svg.iter(f"{SVG}polygon"))
    assert first.get("fill") == "#ffffff"  # a light ground of its own, on dark pages too
    assert texts(svg)[0].startswith(f"{name}: ")


@pytest.mark.parametrize(("name", "level"), [("helios-72", "gpu"), ("rubin-ultra-nvl144", "domain")])
def test_a_number_that_nobody_published_is_not_drawn(name: str, level: str, tmp_path: Path) -> None:
    words = " | ".join(texts(draw_svg(name, tmp_path, level)))
    assert "number not published" in words
    assert "cables not published" in words
    assert not re.search(r"\b(1|2) (switch )?(chips?|links?)\b", words)


@pytest.mark.wide
def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    code = (
        "import sys; from topology import resolve_cluster; from topology.draw import draw_cluster\n"
        "cluster = resolve_cluster('gb200-nvl72@144')\n"
        "for suffix in ('svg', 'png'): draw_cluster(cluster, sys.argv[1] + suffix)"
    )
    for run in ("a.", "b."):
        subprocess.run([sys.executable, "-c", code, str(tmp_path / run)], check=True, cwd=ROOT)
    for suffix in ("svg", "png"):
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def test_three_kinds_of_file(tmp_path: Path) -> None:
    starts = {".svg": b"<?xml", ".png": b"\x89PNG", ".PDF": b"%PDF"}
    for suffix, start in starts.items():
        path = tmp_path / f"x{suffix}"
        draw_cluster(resolve_cluster("hgx-h100"), path)
        assert path.read_bytes().startswith(start)
        assert b"CreationDate" not in path.read_bytes()


@pytest.mark.parametrize("name", ["x.jpg", "x", ".svg", "missing/x.svg"])
def test_bad_targets_leave_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        draw_cluster(resolve_cluster("hgx-h100"), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def overlay(gpus: int) -> Overlay:
    return Overlay(
        [1 + i / gpus for i in range(gpus)], [str(3 + i % 2) for i in range(gpus)], "load over mean"
    )


@pytest.mark.parametrize("name", ["hgx-h100", "rubin-576", "gb200-nvl72@576"])
def test_an_overlay_colours_every_gpu(name: str, tmp_path: Path) -> None:
    cluster = resolve_cluster(name)
    gpus = len(cluster.gpus)
    svg = draw_svg(name, tmp_path, overlay=overlay(gpus))
    assert "load over mean" in texts(svg)
    text = (tmp_path / "x.svg").read_text()
    assert len(set(re.findall(r"<title>(d\d+\.n\d+\.g\d+): \d, [\d.]+</title>", text))) == gpus
    assert "<a " not in text
    assert Ramp([0, 1]).fill(1.0) in text
    assert len(text) < 1_000_000


@pytest.mark.parametrize(
    ("values", "labels"), [([1.0] * 7, ["4"] * 8), ([1.0] * 8, ["4"] * 9), ([float("nan")] * 8, ["4"] * 8)]
)
def test_bad_overlays(values: list[float], labels: list[str]) -> None:
    with pytest.raises(InputError, match="overlay"):
        dot_source(resolve_cluster("hgx-h100"), overlay=Overlay(values, labels, "x"))


def test_names_cannot_break_the_picture(tmp_path: Path) -> None:
    spec = resolve_cluster("hgx-h100@16").spec
    draw_cluster(build_cluster(replace(spec, name='<b>& "x" \x07 ]]> \\N')), tmp_path / "x.svg")
    words = texts(ET.fromstring((tmp_path / "x.svg").read_bytes()))  # noqa: S314 - written by ourselves
    assert words[0].startswith('<b>& "x"  ]]> \\N: 2 x HGX H100')


LETTERS = """
import sys
from pathlib import Path
if sys.argv[2] == "none":
    import topology.draw.render as fonts
    fonts.FONTS = Path(sys.argv[3])
from topology.draw.canvas import Canvas
from topology.draw.render import render
for word in ("bcdefgh", "hgfedcb"):
    Path(sys.argv[1], word + ".png").write_bytes(render(Canvas(word, [word]).source(), "png"))
"""


def letters(folder: Path, fonts: str) -> tuple[bytes, bytes, str]:
    """Draw two words in a process that has no font, no home and no settings but ours."""
    empty = folder / "empty"
    (folder / fonts).mkdir(parents=True)
    empty.mkdir(exist_ok=True)
    (empty / "fonts.conf").write_text("<fontconfig></fontconfig>")
    environment = {
        "PATH": os.defpath,
        "HOME": "/nonexistent",
        "XDG_CACHE_HOME": "/nonexistent",
        "FONTCONFIG_FILE": str(empty / "fonts.conf"),
        "FONTCONFIG_PATH": str(empty),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", LETTERS, str(folder / fonts), fonts, str(empty)]
    done = subprocess.run(command, check=True, cwd=folder, env=environment, capture_output=True, text=True)
    one, two = (folder / fonts / f"{word}.png" for word in ("bcdefgh", "hgfedcb"))
    return one.read_bytes(), two.read_bytes(), done.stderr


@pytest.mark.wide
def test_letters_without_any_installed_font(tmp_path: Path) -> None:
    one, two, messages = letters(tmp_path, "ours")
    assert one != two
    assert messages == ""
    # The control: without the bundled font every letter is the same empty box.
    boxes = letters(tmp_path, "none")
    assert boxes[0] == boxes[1] != one


def test_what_can_be_lost_has_its_id_and_links_say_their_rate(tmp_path: Path) -> None:
    one = draw_svg("gb200-nvl72", tmp_path)
    named = [(group.get("data-kind"), group.get("data-id")) for group in one.iter(f"{SVG}g")]
    cluster = resolve_cluster("gb200-nvl72")
    assert {name for kind, name in named if kind == "gpu"} == {gpu.id for gpu in cluster.gpus}
    assert {name for kind, name in named if kind == "node"} == {gpu.node for gpu in cluster.gpus}
    assert [name for kind, name in named if kind == "rack"] == ["d0.r0"]
    titles = [title.text or "" for title in one.iter(f"{SVG}title")]
    assert "72 x 50 GB/s = 3.6 TB/s each way" in titles
    assert not [text for text in titles if text in ("rackplan", "band", "words", "title")]
    eight = draw_svg("gb200-nvl72@576", tmp_path)
    domains = [group.get("data-id") for group in eight.iter(f"{SVG}g") if group.get("data-kind") == "domain"]
    assert domains == ["d0"]  # the others are alike


@pytest.mark.wide
def test_every_domain_can_be_opened(tmp_path: Path) -> None:
    out = {"kind": "leaf-spine", "nic": "400 Gb/s", "nodes_per_leaf": 8, "spines": 2}
    content = {"domains": [{"part": "tpu-v5p"}, {"part": "mi300x"}], "fabric": out}
    assert "Drawn here: domain d0 of 2" in " | ".join(texts(draw_svg(content, tmp_path, "d0")))
    mesh = draw_svg(content, tmp_path, "d1")
    assert groups(mesh, "edge") == 28
    assert "d1.n0.g7" in " | ".join(texts(mesh))
    with pytest.raises(InputError, match="d0 to d1"):
        draw_svg(content, tmp_path, "d2")


@pytest.mark.wide
def test_ids_may_hold_any_sign(tmp_path: Path) -> None:
    nodes: list[dict[str, Any]] = [{"id": "nvs", "kind": "switch", "domain": "d"}]
    for host in ("a:b<c>:", "plain"):
        place = {"kind": "gpu", "gpu": "gb200", "domain": "d", "node": host}
        nodes += [{"id": f"{host}g{g}", **place} for g in range(2)]
    links = [{"between": [node["id"], "nvs"], "rate": "900 GB/s"} for node in nodes[1:]]
    assert "a:b<c>:" in " | ".join(texts(draw_svg({"nodes": nodes, "links": links}, tmp_path)))


@pytest.mark.wide
def test_groups_of_a_dragonfly_have_an_arc_for_each_two(tmp_path: Path) -> None:
    fabric = {"kind": "dragonfly", "nic": "200 Gb/s", "nodes_per_router": 4, "routers_per_group": 4}
    picture = draw_svg({"domains": [{"part": "gh200-nvl4", "count": 64}], "fabric": fabric}, tmp_path)
    assert groups(picture, "edge") == 6 + 4  # four groups, each with a bundle to its hosts
    words = texts(picture)
    counts = [int(word.removesuffix(" links")) for word in words if re.fullmatch(r"\d+ links", word)]
    assert (len(counts), sum(counts)) == (6, 128)
    assert {f"r{router}" for router in range(4)} <= set(words)


def test_long_titles_are_broken_and_every_tier_is_named(tmp_path: Path) -> None:
    parts = ("hgx-h100", "hgx-b200", "gb200-nvl72", "hgx-h200", "hgx-a100")
    domains = [{"part": part, "count": 2} for part in parts]
    fabric = {"kind": "leaf-spine", "nic": "400 Gb/s"}
    broken = [{"gpu": f"d{n}.n0.g{g}"} for n in range(10) for g in range(3)]
    long = {
        "name": "a cluster with a name of many words, " * 3,
        "domains": domains,
        "fabric": fabric,
        "broken": broken,
    }
    svg = draw_svg(long, tmp_path)
    assert float(svg.get("width", "").removesuffix("pt")) <= 1080
    assert "30 out of service" in " ".join(texts(svg))
    planes = " | ".join(texts(draw_svg("hgx-h100@16384", tmp_path)))
    assert "4 spine planes (f.s0 to f.s3): 512 spines and 256 cores" in planes
    once = texts(draw_svg("rubin-576", tmp_path))
    assert sum(text.startswith("36 switch planes") for text in once) == 1
