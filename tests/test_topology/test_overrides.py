"""Figures that a user sets: read strictly, applied to the part that is meant, marked as the user's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from topology import Evidence, InputError, build_cluster, resolve_cluster
from topology.changes.overrides import overrides
from topology.cluster import ClusterSpec
from topology.files.cluster_file import read_cluster_file

RACK = resolve_cluster("gb200-nvl72@144").spec


def changed(text: str, spec: ClusterSpec = RACK) -> ClusterSpec:
    return overrides([build_cluster(spec)], [text])[0].spec


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("gb200.hbm_bytes_per_s=2x", 16e12),
        ("gb200.hbm_bytes_per_s=0.5 X", 4e12),
        ("GB200.HBM-bytes_per_s=+10%", 8.8e12),
        ("gb200.hbm_bytes_per_s=-25%", 6e12),
        ("gb200.hbm_bytes_per_s=16 TB/s", 16e12),
        ("gb200.hbm_bytes_per_s=16e12", 16e12),
        (" gpu . hbm_bytes_per_s = 16e12 ", 16e12),
    ],
)
def test_a_value_is_a_quantity_a_number_a_factor_or_a_percentage(text: str, value: float) -> None:
    figure = changed(text).domains[1].gpu.figure("hbm_bytes_per_s")
    assert figure.value == pytest.approx(value)
    assert (figure.kind, figure.source.startswith("set by the user")) == (Evidence.USER, True)
    assert "8.0 TB/s" in figure.source


def test_links_are_set_inside_domains_between_them_or_by_the_name_of_their_fabric() -> None:
    assert changed("nvlink5.link_bytes_per_s=900e9").domains[0].fabric.link_bytes_per_s.value == 900e9
    assert changed("scale_up.latency_s=1 us").domains[0].fabric.latency_s.value == 1e-6
    for part in ("scale-out", "ib-ndr400"):
        out = changed(f"{part}.link_bytes_per_s=2x")
        assert out.scale_out is not None
        assert out.scale_out.scale_out_bytes_per_s == 100e9
        assert out.domains == RACK.domains


def test_all_peaks_of_a_gpu_change_by_one_factor() -> None:
    old, new = RACK.domains[0].gpu.figures, changed("gb200.flop_per_s=2x").domains[0].gpu.figures
    for key, figure in new.items():
        assert figure.value == old[key].value * (2 if key.endswith("flop_per_s") else 1)


def test_a_factor_for_every_gpu_leaves_out_those_that_lack_the_figure(tmp_path: Path) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(
        "domains: [{part: hgx-h100}, {part: hgx-b200}]\n"
        "fabric: {kind: leaf-spine, nic: 400 Gb/s, nodes_per_leaf: 2, spines: 1}\n"
    )
    spec = read_cluster_file(path)
    first, second = changed("gpu.fp4_flop_per_s=2x", spec).domains
    assert not first.gpu.multiplies("fp4")
    assert second.gpu.dense_flop_per_s("fp4") == 2 * spec.domains[1].gpu.dense_flop_per_s("fp4")
    assert changed("h100.hbm_bytes=2x", spec).domains[1] is spec.domains[1]


def test_a_system_and_what_nobody_published_can_be_given() -> None:
    assert changed("gb200-nvl72.rack_power_w=150 kW").domains[0].figures["rack_power_w"].value == 150e3
    assert (
        changed("gb200-nvl72.copper_cables_per_link=2x").domains[0].figures["copper_cables_per_link"].value
        == 8
    )
    spec = resolve_cluster("hgx-h800").spec
    price = changed("h800-sxm.usd_per_h=2.5 USD/h", spec).domains[0].gpu.figure("usd_per_h")
    assert (price.value, price.source) == (2.5, "set by the user")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gb200", "PART.FIGURE=VALUE"),
        ("gb200.hbm_bytes=", "PART.FIGURE=VALUE"),
        ("gb200.hbm_bytes=0", "must be positive and finite"),
        ("gb200.hbm_bytes=1e308x", "differs from 185 GiB by more than 10,000x"),
        ("gb200-nvl72.gpus=144", "cluster YAML"),
        ("gb200.hbm_bytes=80 TB", "too large for the memory of one GPU"),
        ("gb200.hbm_bytes_per_s=8 GB/s", "too small for the bandwidth of one GPU's memory"),
        *(
            (f"gb200.hbm_bytes={wrong}", "a positive number")
            for wrong in ("-2x", "+2x", "x2", "nanx", "2,5x")
        ),
        ("gb200.hbm=2x", "did you mean hbm_bytes"),
        ("h100.hbm_bytes=2x", "known: gb200, "),
        ("gb200.usd_per_h=2x", "set yours with `prices` gb200=2.50"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(text: str, words: str) -> None:
    with pytest.raises(InputError, match="`settings` ") as refused:
        changed(text)
    assert words in str(refused.value)


def test_a_cluster_without_a_fabric_between_domains_says_so() -> None:
    spec = replace(resolve_cluster("hgx-h100").spec, scale_out=None)
    with pytest.raises(InputError, match="no fabric between domains"):
        changed("scale-out.link_bytes_per_s=2x", spec)


def test_of_several_clusters_those_change_that_have_the_part() -> None:
    clusters = [resolve_cluster("hgx-h100"), resolve_cluster("gb200-nvl72")]
    first, second = overrides(clusters, ["gb200.hbm_bytes=2x"])
    assert first is clusters[0]
    assert second.spec.domains[0].gpu.hbm_bytes == 2 * clusters[1].spec.domains[0].gpu.hbm_bytes
    with pytest.raises(InputError, match=r"none of hgx-h100, gb200-nvl72 has a part 'b300'"):
        overrides(clusters, ["b300.hbm_bytes=2x"])


def test_the_links_of_a_raw_graph_are_told_apart_by_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "raw.yaml"
    path.write_text(
        """
nodes:
  - {id: a0, kind: gpu, gpu: h100-sxm, domain: A, node: a}
  - {id: a1, kind: gpu, gpu: h100-sxm, domain: A, node: a}
  - {id: b0, kind: gpu, gpu: h100-sxm, domain: B, node: b}
  - {id: leaf, kind: leaf}
links:
  - {between: [a0, a1], count: 18, fabric: nvlink4}
  - {between: [a0, leaf], fabric: ib-ndr400}
  - {between: [a1, leaf], fabric: ib-ndr400}
  - {between: [b0, leaf], fabric: ib-ndr400}
"""
    )
    old = read_cluster_file(path)
    settings = ["scale-up.link_bytes_per_s=2x", "gpu.hbm_bytes=0.5x"]
    new = overrides([build_cluster(old)], settings)[0].spec
    assert new.domains[0].scale_up_bytes_per_s == 2 * old.domains[0].scale_up_bytes_per_s
    assert new.scale_out == old.scale_out
    assert new.domains[1].gpu.hbm_bytes == old.domains[1].gpu.hbm_bytes / 2
    assert build_cluster(new).scale_up_bytes_per_s(0) == 2 * build_cluster(old).scale_up_bytes_per_s(0)
