"""Shapes of tori: what a part is made in, where it wraps, and what a count is answered with."""

from __future__ import annotations

from itertools import product
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import InputError, load_domain, resolve_cluster
from topology.catalog.shapes import shape_of, shaped
from topology.structures.torus import default_node_shape, torus_places


@pytest.mark.parametrize(
    ("name", "shape", "wrap"),
    [
        ("tpu-v5p", (4, 4, 4), (True, True, True)),
        ("tpu-v5p@4x4x8", (4, 4, 8), (True, True, True)),
        ("tpu-v5p@2x2x4", (2, 2, 4), (False, False, False)),
        ("tpu-v5p@2x2x1", (2, 2, 1), (False, False, False)),
        ("tpu-v6e", (16, 16), (True, True)),
        ("tpu-v6e@8x16", (8, 16), (False, True)),
        ("tpu-v6e@4x4", (4, 4), (False, False)),
        ("tpu-v7@8x8x8", (8, 8, 8), (True, True, True)),
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


@settings(deadline=None, max_examples=20)
@given(st.sampled_from([(4, 4, 4), (8, 4, 4), (2, 2, 4), (8, 8, 8)]))
def test_every_place_once_and_hosts_are_blocks(shape: tuple[int, ...]) -> None:
    domain = shaped(load_domain("tpu-v5p"), shape, "test")
    places = list(map(tuple, torus_places(domain).T.tolist()))
    assert sorted(places) == sorted(set(places))
    assert len(places) == prod(shape)
    for host in range(0, len(places), 4):
        xs, ys, zs = zip(*places[host : host + 4], strict=True)
        assert (max(xs) - min(xs), max(ys) - min(ys), max(zs) - min(zs)) == (1, 1, 0)


@pytest.mark.parametrize(
    ("shape", "gpus", "block"),
    [
        ((4, 4, 4), 4, (1, 1, 4)),
        ((4, 4, 4), 16, (1, 4, 4)),
        ((4, 4, 4), 2, (1, 1, 2)),
        ((3, 4), 8, None),
        ((4, 6), 12, (2, 6)),
    ],
)
def test_hosts_as_runs(shape: tuple[int, ...], gpus: int, block: tuple[int, ...] | None) -> None:
    if block is None:
        with pytest.raises(InputError, match="node_shape"):
            default_node_shape(shape, gpus)
    else:
        assert default_node_shape(shape, gpus) == block


def written(folder: Path, row: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(f"domains: [{{{row}}}]\nfabric: {{kind: rail, nic: 100 Gb/s}}")
    return str(path)


def test_tori_in_a_file(tmp_path: Path) -> None:
    row = "gpu: tpu-v5p, structure: torus, shape: [4, 4, 2], wrap: [true, true, false], link: 100 GB/s, count: 2"
    domain, _ = resolve_cluster(written(tmp_path, row)).spec.domains
    assert (domain.wrap, domain.node_shape, domain.gpus_per_node) == ((True, True, False), (2, 2, 1), 4)
    assert (domain.links_per_gpu, domain.scale_up_bytes_per_s) == (5, 500e9)
    row = "part: tpu-v5p, shape: [4, 4, 8], count: 2"
    assert [d.gpus for d in resolve_cluster(written(tmp_path, row)).spec.domains] == [128, 128]
    row = "gpu: h100-sxm, structure: torus, shape: [2, 3], wrap: true, link: 25 GB/s, gpus_per_node: 3"
    domain = resolve_cluster(written(tmp_path, row)).spec.domains[0]
    assert (domain.node_shape, domain.links_per_dimension) == ((1, 3), (2, 2))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("part: tpu-v5p, gpus: 32", "a shape, not a count"),
        ("gpu: h100-sxm, structure: torus, shape: [4, 4], wrap: true, link: 25 GB/s", "gpus_per_node"),
        ("gpu: tpu-v5p, structure: torus, shape: [4, 4, 4], wrap: yes please, link: 100 GB/s", "true, false"),
        (
            "gpu: tpu-v5p, structure: torus, shape: [4, 4, 4], wrap: true, link: [100 GB/s]",
            "1 link rates for 3",
        ),
        (
            "gpu: tpu-v5p, structure: torus, shape: [4, 4, 4], wrap: true, link: 100 GB/s, gpus: 64",
            "unknown key `gpus`",
        ),
    ],
)
def test_mistakes_in_a_torus(tmp_path: Path, row: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve_cluster(written(tmp_path, row))
    assert words in str(caught.value)
