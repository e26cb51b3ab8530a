"""The catalog: figures that add up and say where they come from, names in any spelling, shapes of tori."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from math import prod
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_contract import validate_graph
from topology import (
    Figure,
    InputError,
    MissingFigureError,
    cluster_names,
    fabric_names,
    find_scale_out,
    gpu_names,
    load_domain,
    load_fabric,
    load_gpu,
    load_scale_out,
    resolve_cluster,
)
from topology.base.units import parse_quantity
from topology.catalog.shapes import shape_of, shaped
from topology.catalog.spelled import fabric_called, find_gpu, system_called
from topology.files.resolve import cluster_called


def all_figures() -> list[tuple[str, Figure]]:
    figures = [(f"{name}.{key}", f) for name in gpu_names() for key, f in load_gpu(name).figures.items()]
    for name in fabric_names():
        fabric = load_fabric(name)
        figures += [(f"{name}.link", fabric.link_bytes_per_s), (f"{name}.latency", fabric.latency_s)]
    figures += [
        (f"{name}.{key}", f) for name in cluster_names() for key, f in load_domain(name).figures.items()
    ]
    return figures


def test_every_figure_has_its_origin() -> None:
    figures = all_figures()
    assert len(figures) > 80
    for place, figure in figures:
        assert figure.source.strip(), place
        if figure.text == "not published":
            assert not figure.published
            continue
        if figure.unit == "1":
            assert figure.value == int(figure.text)
            continue
        assert figure.value == parse_quantity(figure.text, figure.unit, place)
        assert "/" not in figure.source.split("@")[0] or "csv" not in figure.source, place


# What makers print of a whole: bytes/s of all scale-up links of a GPU in both directions, bit/s of a host's NICs, and
# sums over the domain: dense flop/s of one kind, bytes/s of HBM. Their figures of one chip or link are elsewhere.
PRINTED: dict[str, dict[str, float]] = {
    "hgx-a100": {"up": 600e9, "host": 1600e9, "bf16": 2.5e15},
    "hgx-a100-40gb": {"up": 600e9, "host": 1600e9, "bf16": 2.5e15},
    "hgx-h100": {"up": 900e9, "host": 3200e9, "fp8": 32e15 / 2, "hbm": 26.8e12},
    "hgx-h800": {"up": 400e9, "host": 3200e9},
    "hgx-h20": {"up": 900e9, "host": 1600e9},
    "hgx-h20-141gb": {"up": 900e9, "host": 3200e9},
    "hgx-h200": {"up": 900e9, "host": 3200e9, "fp8": 32e15 / 2, "hbm": 38.4e12},
    "hgx-b200": {"up": 1.8e12, "host": 3200e9, "fp8": 72e15 / 2, "fp4": 144e15 / 2, "hbm": 64e12},
    "hgx-b300": {"up": 1.8e12, "host": 6400e9, "fp8": 72e15 / 2},
    "gb200-nvl72": {"up": 1.8e12, "host": 1600e9, "fp8": 720e15 / 2, "fp4": 1440e15 / 2, "hbm": 576e12},
    "gb300-nvl72": {"up": 1.8e12, "host": 3200e9, "fp8": 720e15 / 2, "fp4": 1080e15, "hbm": 576e12},
    "gb200-nvl4": {"up": 1.8e12, "host": 3200e9},
    "gh200-nvl4": {"up": 900e9, "host": 800e9},
    "l40s": {"up": 63e9, "host": 400e9, "fp8": 8 * 733e12},
    "rtx-pro-6000": {"up": 126e9, "host": 1600e9, "hbm": 8 * 1597e9},
    "h100-nvl": {"up": 600e9, "hbm": 7.8e12},
    "h200-nvl": {"up": 900e9, "hbm": 19.2e12},
    "h100-pcie": {"up": 126e9, "fp8": 8 * 3026e12 / 2},
    "a100-pcie": {"up": 63e9, "bf16": 8 * 624e12 / 2},
    "a100-pcie-40gb": {"up": 63e9, "bf16": 8 * 624e12 / 2},
    "l4": {"up": 63e9, "fp8": 8 * 485e12 / 2, "hbm": 2.4e12},
    "vr200-nvl72": {"up": 216e12 / 72, "host": 6400e9, "fp8": 1260e15},
    "hgx-rubin-nvl8": {"up": 28.8e12 / 8, "host": 6400e9, "fp8": 140e15, "hbm": 176e12},
    "vr-nvl72": {"up": 3.6e12, "host": 6400e9, "fp4": 2520e15, "hbm": 1580e12},
    "rubin-576": {"up": 3.6e12, "host": 6400e9},
    "mi250x": {"up": 600e9, "host": 800e9, "bf16": 4 * 383e12, "hbm": 4 * 3.28e12},
    "mi300x": {"up": 896e9, "host": 3200e9, "bf16": 10.5e15, "hbm": 42.4e12},
    "mi325x": {"up": 896e9, "host": 3200e9, "bf16": 10.5e15, "hbm": 48e12},
    "mi350x": {"up": 1075.2e9, "host": 3200e9, "fp8": 36.9e15, "fp4": 147.6e15 / 2, "hbm": 64e12},
    "mi355x": {"up": 1075.2e9, "host": 3200e9, "fp8": 40.3e15, "fp4": 80.5e15, "hbm": 64e12},
    "helios-72": {"up": 260e12 / 72, "host": 43e12 / 2 * 8 / 18, "fp4": 2.9e18 / 2},
    "gaudi3": {"up": 1050e9, "host": 4800e9, "hbm": 8 * 3.7e12},
    "tpu-v5e": {"up": 400e9, "host": 200e9, "bf16": 50.63e15},
    "tpu-v5p": {"up": 1200e9},
    "tpu-v6e": {"up": 800e9, "host": 800e9, "bf16": 234.9e15},
    "tpu-v7": {"up": 1200e9},
    "tpu-8t": {"up": 2400e9, "fp4": 64 * 121e18 / 9600},
    "tpu-8i": {"up": 19.2e12 / 8, "fp8": 11.6e18},
    "maia-200": {"up": 2.8e12 * 20 / 28, "host": 4 * 8 * 400e9},
    "trn2-ultra": {"up": 1.28e12, "host": 3200e9, "fp8": 83.2e15, "bf16": 42.8e15, "hbm": 185.6e12},
    "trn3-ultra-64": {"up": 2048e9, "host": 3200e9, "fp8": 161.1e15, "bf16": 42.9e15, "hbm": 313.6e12},
    "trn3-ultra-144": {"up": 2048e9, "host": 800e9, "fp8": 362.4e15, "fp4": 362.4e15, "hbm": 705.6e12},
    "atlas-950": {"up": 1.68e12 * 14 / 18, "host": 8 * 1.68e12 * 8 / 2 * 4 / 18},
    "cm384": {"up": 392e9, "host": 3200e9, "bf16": 289e15, "hbm": 1229e12},
}


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_figures_of_one_add_up_to_what_makers_print_of_all(name: str) -> None:
    domain, out = load_domain(name), find_scale_out(name)
    printed = dict(PRINTED[name])
    assert 2 * domain.scale_up_bytes_per_s == pytest.approx(printed.pop("up"), rel=0.01)
    if host := printed.pop("host", 0.0):
        assert out is not None
        assert 8 * domain.gpus_per_node * out.scale_out_bytes_per_s == pytest.approx(host, rel=0.01)
    if rate := printed.pop("hbm", 0.0):
        assert domain.gpus * domain.gpu.hbm_bytes_per_s == pytest.approx(rate, rel=0.01)
    for dtype, flops in printed.items():
        assert domain.gpus * domain.gpu.dense_flop_per_s(dtype) == pytest.approx(flops, rel=0.015)


@pytest.mark.parametrize(
    ("name", "gpus", "racks"),
    [("rubin-ultra-nvl144", 144, 1), ("NVL576", 576, 8), ("mi440x", 8, 1)],
)
def test_what_nobody_publishes_is_drawn_and_not_scored(name: str, gpus: int, racks: int) -> None:
    cluster = resolve_cluster(name)
    validate_graph(cluster.graph)
    assert Counter(gpu.rack for gpu in cluster.gpus) == {
        f"d0.r{rack}": gpus // racks for rack in range(racks)
    }
    gpu = cluster.spec.domains[0].gpu
    assert math.isnan(cluster.spec.domains[0].scale_up_bytes_per_s)
    with pytest.raises(MissingFigureError, match=rf"{gpu.name}.*Give it in a cluster YAML"):
        gpu.dense_flop_per_s("bf16")
    with pytest.raises(MissingFigureError, match="network between its domains is not published"):
        load_scale_out(cluster.name)


# Names as people type them


@given(st.sampled_from(cluster_names()), st.randoms(use_true_random=False))
def test_case_and_what_stands_between_words_do_not_matter(name: str, random: Random) -> None:
    typed = "".join(random.choice("-_ ") if c == "-" else random.choice((c, c.upper())) for c in name)
    assert cluster_called(f" {typed} ") == system_called(typed) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA H200", "hgx-h200"),
        ("8 \u00d7 H100", "hgx-h100"),
        ("hgx-h100 x 4", "hgx-h100@32"),
        ("4x GB200 NVL72", "gb200-nvl72@288"),
        ("Intel Gaudi 3", "gaudi3"),
    ],
)
def test_clusters_in_any_spelling(text: str, name: str) -> None:
    assert cluster_called(text) == name
    assert resolve_cluster(text).name == resolve_cluster(name).name == name


def test_what_means_none_or_several_is_refused() -> None:
    assert find_gpu("h10") is None
    for call, text, words in (
        (system_called, "tpu", "may be tpu-v5e, tpu-v5p, tpu-v6e, tpu-v7, tpu-8t or tpu-8i"),
        (cluster_called, "gb20", r"did you mean (\S+ or ){1,2}\S+ .* must end in \.yaml"),
        (cluster_called, "zzzzzz", "known: "),
        (fabric_called, "nvlink9", 'unknown fabric "nvlink9"; did you mean nvlink'),
    ):
        with pytest.raises(InputError, match=words):
            call(text)


# Shapes of tori: where they wrap, and what a count is answered with


@pytest.mark.parametrize(
    ("name", "shape", "wrap"),
    [
        ("tpu-v5p@4x4x8", (4, 4, 8), (True, True, True)),
        ("tpu-v5p@2x2x4", (2, 2, 4), (False, False, False)),
        ("tpu-v6e@8x16", (8, 16), (False, True)),
        ("trn2-ultra@4x4x4", (4, 4, 4), (True, True, True)),
    ],
)
def test_shapes_and_where_they_wrap(name: str, shape: tuple[int, ...], wrap: tuple[bool, ...]) -> None:
    cluster = resolve_cluster(name)
    (domain,) = cluster.spec.domains
    assert (domain.shape, domain.wrap) == (shape, wrap)
    assert len(cluster.gpus) == prod(shape)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 600))
def test_a_suggested_shape_is_one(chips: int) -> None:
    domain = load_domain("tpu-v5p")
    shape = shape_of(domain, chips)
    if shape is None:
        # no block of 2x2x1 hosts inside one cube of 4, and no whole cubes
        inside = product((2, 4), (2, 4), (1, 2, 3, 4))
        assert chips % 64
        assert all(prod(block) != chips for block in inside)
        return
    assert prod(shape) == chips
    assert shaped(domain, shape, "test").gpus == chips
