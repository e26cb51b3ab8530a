"""From text to cluster: names, counts, and the mistakes people make."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import (
    InputError,
    cluster_from_dict,
    cluster_names,
    cluster_to_dict,
    load_domain,
    resolve_cluster,
)
from topology.changes.repeat import repeated
from topology.exporters.cluster_yaml import cluster_to_yaml
from topology.files.cluster_file import read_cluster
from topology.physical import physical_of_whole, power_share


def test_ids_and_places() -> None:
    cluster = resolve_cluster("gb200-nvl72@144")
    gpu = cluster.gpus[72 + 4 * 17 + 3]
    assert (gpu.id, gpu.domain, gpu.node, gpu.rack, gpu.rail) == ("d1.n17.g3", 1, "d1.n17", "d1.r0", 3)
    assert cluster.domain_of(143).part == "gb200-nvl72"
    assert {gpu.rack for gpu in resolve_cluster("rubin-576").gpus} == {f"d0.r{i}" for i in range(8)}


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(["hgx-h100", "gb200-nvl72", "rubin-576", "lecture-512"]), st.integers(1, 500))
def test_counts_fill_domains_in_order(name: str, nodes: int) -> None:
    domain = load_domain(name)
    gpus = nodes * domain.gpus_per_node
    cluster = resolve_cluster(f"{name}@{gpus}")
    sizes = [d.gpus for d in cluster.spec.domains]
    assert sum(sizes) == gpus == len(cluster.gpus)
    assert all(size == domain.gpus for size in sizes[:-1])
    assert 0 < sizes[-1] <= domain.gpus
    assert [gpu.domain for gpu in cluster.gpus] == sorted(gpu.domain for gpu in cluster.gpus)


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        (name, gpus)
        for name in cluster_names()
        for gpus in (1, 2, 4)
        if not load_domain(name).whole and gpus <= load_domain(name).gpus_per_node
    ],
)
def test_a_part_of_a_host_is_a_cluster(name: str, gpus: int) -> None:
    full, cluster = load_domain(name), resolve_cluster(f"{name}@{gpus}")
    (domain,) = cluster.spec.domains
    assert (len(cluster.gpus), domain.gpus_per_node, domain.nodes) == (gpus, gpus, 1)
    ends = cluster.wiring.scale_up_bytes_per_s[[cluster.wiring.number[gpu.id] for gpu in cluster.gpus]]
    if full.structure == "nested":
        assert ends.min() == domain.scale_up_bytes_per_s
    else:
        switched = full.structure != "mesh"  # its links to the switches are all its own
        links = full.links_per_gpu if switched else full.links_per_gpu // (full.gpus - 1) * (gpus - 1)
        assert domain.links_per_gpu == links
        assert np.array_equal(ends, [domain.scale_up_bytes_per_s] * gpus, equal_nan=True)
    assert power_share(domain) == power_share(full)
    assert physical_of_whole(cluster).power.value == pytest.approx(
        None
        if (whole := physical_of_whole(resolve_cluster(name)).power.value) is None
        else whole * gpus / full.gpus
    )
    if cluster.spec.scale_out is not None:
        hosts = repeated(cluster, 3).wiring
        nics = cluster.spec.scale_out.nic_links_per_gpu
        out = [
            hosts.is_kind("gpu")[a] != hosts.is_kind("gpu")[b] for a, b in zip(hosts.a, hosts.b, strict=True)
        ]
        assert (
            hosts.count[np.array(out) & (hosts.domain[hosts.a] != hosts.domain[hosts.b])].sum()
            == 3 * gpus * nics
        )
    written = read_cluster(yaml.safe_load(cluster_to_yaml(cluster.spec)), "it", "it")
    assert cluster_from_dict(cluster_to_dict(cluster)).spec == written == cluster.spec


@pytest.mark.parametrize("value", [None, 3, True, 2.5, [1], ("a",), b"hgx-h100", Path("no.yaml"), {}, {1: 2}])
def test_what_is_no_cluster_is_refused(value: object) -> None:
    with pytest.raises(InputError):
        resolve_cluster(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("hgx-h10", "hgx-h100"),
        ("hgx", "hgx-h100, hgx-h800"),
        ("hgx-h100@", "hgx-h100@8"),
        ("hgx-h100@٨", "hgx-h100@8"),
        ("hgx-h100@3", "are hgx-h100@2 or hgx-h100@4"),
        ("gb200-nvl72@74", "are gb200-nvl72@72 or gb200-nvl72@76"),
        ("hgx-h100@99999992", "at most"),
        ("H100 PCI", "did you mean h100-pcie"),
        ("TPU 8", "may be tpu-8t or tpu-8i"),
        ("nvl72", "did you mean gb200-nvl72 or gb300-nvl72 or vr-nvl72"),
        (
            "rubin",
            "may be vr-nvl72, vr200-nvl72, hgx-rubin-nvl8, rubin-576, rubin-ultra-nvl144 or rubin-ultra-nvl576",
        ),
        ("12 x H100", "12 GPUs do not fill whole nodes of 8"),
        ("0xH100", "expected a number of GPUs after @"),
        ("64 x TPU v6e", "its shape"),
        ("tpu-v5p@128", "tpu-v5p@4x4x8"),
        ("tpu-v6e@128", "tpu-v6e@8x16"),
        ("tpu-v5p@4x", "tpu-v5p@4x4x4"),
        ("tpu-v5p@3x4x4", "must divide"),
        ("tpu-v6e@2x128", "16 in a dimension"),
        ("trn2-ultra@100", "multiple of 64"),
    ],
)
def test_mistakes_get_one_line_with_a_remedy(text: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve_cluster(text)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


FULL = """
name: mine
domains:
  - {part: gb200-nvl72, count: 2}
  - {part: gb200-nvl72, gpus: 44}
  - gpu: h100-sxm
    gpus: 8
    gpus_per_node: 8
    structure: switch
    links_per_switch: [5, 5, 4, 4]
    link: 25 GB/s
    count: 3
fabric: {kind: rail, nic: 400 Gb/s, oversubscription: 2}
prices: {gb200: 9 USD/h}
gpus:
  h100-sxm: {power_w: 650 W}
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_cluster_file(tmp_path: Path) -> None:
    spec = resolve_cluster(written(tmp_path, FULL)).spec
    assert [d.gpus for d in spec.domains] == [72, 72, 44, 8, 8, 8]
    assert spec.name == "mine"
    assert spec.scale_out is not None
    assert spec.scale_out.scale_out_bytes_per_s == 50e9
    assert spec.scale_out.oversubscription == 2
    price = spec.domains[0].gpu.figure("usd_per_h")
    assert (price.value, price.kind.label, price.source) == (9, "user", "mine.yaml")
    assert spec.domains[3].gpu.figure("power_w").value == 650
    assert spec.domains[3].scale_up_bytes_per_s == 450e9


ONE = "domains: [{part: hgx-h100}]\n"
INLINE = "gpu: h100-sxm, gpus: 8, gpus_per_node: 8, structure: switch, links_per_switch: [5], link: 25 GB/s"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "mapping"),
        ("domains: []", "at least one"),
        ("domains: [{part: hgx-h10}]", "hgx-h100"),
        ("domains: [{part: hgx-h100, count: 0}]", "whole number"),
        ("domains: [{part: gb200-nvl72, gpus: 10}]", "8 or 12"),
        (f"domains: [{{{INLINE.replace('25 GB/s', '25')}}}]", "no unit|has no unit"),
        (f"domains: [{{{INLINE.replace('h100-sxm', 'h100-sxn')}}}]", "h100-sxm"),
        (f"domains: [{{{INLINE}, count: 2}}]", "fabric"),
        (ONE + "fabric: {kind: butterfly, nic: 400 Gb/s}", "butterfly"),
        (ONE + "fabric: {kind: rail, nic: 400 Gb/s, oversubscription: 0}", "greater than zero"),
        (ONE + "broken: [{gpu: d0.n0.g9}]", "d0.n0.g9"),
        (ONE + "prices: {h100-sxm: 2 USD/h, H100 SXM: 3 USD/h}", "prices: H100 SXM: h100-sxm has two prices"),
        (ONE + "color: red", "unknown key `color`"),
        ("a: &a [x, x]\nb: &b [*a, *a]\n", "aliases"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, text: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve_cluster(written(tmp_path, text))
    message = str(caught.value)
    assert any(part in message for part in hint.split("|")), message
    assert message.startswith(("mine.yaml", "broken: no GPU")) or "unknown" in message
    assert "\n" not in message
