"""What changes a cluster: faults, figures that a user sets, parts of it, and units that repeat."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cost.inputs.machine import stage_rates
from cost.money.prices import PriceBook
from graph_contract import validate_graph
from topology import (
    ClusterView,
    Evidence,
    Fault,
    InfeasibleError,
    InputError,
    MissingFigureError,
    build_cluster,
    resolve_cluster,
)
from topology.build import rebuilt
from topology.changes.overrides import overrides
from topology.changes.repeat import alike, repeated
from topology.cluster import Cluster, ClusterSpec
from topology.files.cluster_data import cluster_from_dict, cluster_to_dict


def broken(name: str, *faults: Fault) -> Cluster:
    return build_cluster(replace(resolve_cluster(name).spec, faults=faults))


# Faults


def test_links_down_and_slow() -> None:
    cluster = broken(
        "hgx-h100@16",
        Fault(link=("d0.n0.g0", "d0.s0")),
        Fault(link=("d0.s1", "d0.n0.g0"), factor=0.5),
        Fault(link=("d0.n0.g3", "f.p0.l3"), factor=0.25),
    )
    graph = cluster.graph
    validate_graph(graph)
    assert not graph.has_edge("d0.n0.g0", "d0.s0")
    assert graph.graph["broken_links"] == (("d0.n0.g0", "d0.s0"),)
    slow = graph.edges["d0.n0.g0", "d0.s1"]
    assert (slow["health"], slow["link_bytes_per_s"], slow["bytes_per_s"]) == (0.5, 25e9, 62.5e9)
    assert graph.edges["d0.n0.g3", "f.p0.l3"]["bytes_per_s"] == 12.5e9
    # 18 links of 25 GB/s, five of them down and five at half
    assert cluster.scale_up_bytes_per_s(0) == 450e9 - 125e9 - 62.5e9
    assert cluster.scale_up_bytes_per_s(1) == 450e9
    assert stage_rates(cluster, range(8), ["bf16"]).up_bytes_per_s == 262.5e9
    assert stage_rates(cluster, range(8, 16), ["bf16"]).up_bytes_per_s == 450e9


def test_gpus_that_faults_cut_off_are_infeasible_and_named() -> None:
    links = (*(("d0.n0.g2", f"d0.s{s}") for s in range(4)), ("d0.n0.g2", "f.p0.l2"))
    with pytest.raises(InfeasibleError, match=r"disconnect GPUs.*2 islands.*1 GPU \(d0\.n0\.g2\)"):
        broken("hgx-h100@16", *(Fault(link=link) for link in links))


def test_a_rate_nobody_published_is_said_when_scored() -> None:
    known = resolve_cluster("hgx-h100").spec.domains[0].gpu
    spec = resolve_cluster("rubin-ultra-nvl144").spec
    cluster = build_cluster(replace(spec, domains=(replace(spec.domains[0], gpu=known),)))
    with pytest.raises(MissingFigureError, match="nvlink7 is not published"):
        stage_rates(cluster, range(4), ["bf16"])


PODS = "domains: [{part: hgx-h100, count: 4}]\nfabric: {kind: rail, nic: 400 Gb/s, nodes_per_pod: 2}\n"


def written(folder: Path, rows: str, start: str = PODS) -> Cluster:
    (folder / "mine.yaml").write_text(f"{start}broken: {rows}\n")
    return resolve_cluster(str(folder / "mine.yaml"))


def test_gpus_and_nodes_that_are_gone_or_throttled(tmp_path: Path) -> None:
    cluster = written(tmp_path, "[{gpu: d0.n0.g3, factor: 0.7}, {gpu: d1.n0.g0}]")
    validate_graph(cluster.graph)
    assert (len(cluster.gpus), cluster.spec.gpus) == (31, 32)
    assert cluster.spec.slow_gpus == {"d0.n0.g3": 0.7}
    assert cluster.graph.graph["broken_gpus"] == ("d1.n0.g0",)
    assert not cluster.spec.reshaped  # behind switches nobody sends through the one that is gone
    whole, slow = stage_rates(cluster, [0], ["bf16"]), stage_rates(cluster, range(8), ["bf16"])
    assert slow.flop_per_s["bf16"] == pytest.approx(0.7 * whole.flop_per_s["bf16"])
    assert slow.hbm_bytes_per_s == pytest.approx(0.7 * whole.hbm_bytes_per_s)
    assert slow.up_bytes_per_s == whole.up_bytes_per_s
    node = written(tmp_path, "[{node: d0.n3}]", "domains: [{part: gb200-nvl72}]\n")
    assert [fault.gpu for fault in node.spec.faults] == [f"d0.n3.g{g}" for g in range(4)]


@pytest.mark.parametrize(
    ("entry", "links"),
    [
        ("nic: d0.n0.g1", {("d0.n0.g1", "f.p0.l1")}),
        ("leaf: f.p0.l1", {("f.p0.l1", end) for end in ("d0.n0.g1", "d1.n0.g1", "f.s0", "f.s1")}),
        ("switch: d1.s2", {("d1.s2", f"d1.n0.g{g}") for g in range(8)}),
        ("plane: 1", {("f.s1", f"f.p{p}.l{r}") for p in range(2) for r in range(8)}),
        ("link: [f.p0.l1, f.s0]", {("f.p0.l1", "f.s0")}),
    ],
)
def test_a_part_is_named_and_its_links_are_broken(
    tmp_path: Path, entry: str, links: set[tuple[str, str]]
) -> None:
    spec = written(tmp_path, f"[{{{entry}, factor: 0.5}}, {{gpu: d3.n0.g0}}]").spec
    factors = {frozenset(fault.link): fault.factor for fault in spec.faults if fault.link is not None}
    assert factors == {frozenset(link): 0.5 for link in links}
    # a link of two parts has what the worse leaves
    if entry.startswith("leaf"):
        spec = written(tmp_path, f"[{{{entry}, factor: 0.5}}, {{nic: d0.n0.g1}}]").spec
        assert sorted(fault.factor for fault in spec.faults) == [0.0, 0.5, 0.5, 0.5]


# Figures that a user sets


RACK = resolve_cluster("gb200-nvl72@144").spec


def changed(text: str, spec: ClusterSpec = RACK) -> ClusterSpec:
    return overrides([build_cluster(spec)], [text])[0].spec


def test_a_value_is_a_quantity_a_number_a_factor_or_a_percentage() -> None:
    values = {"=2x": 16e12, "=-25%": 6e12, "=16 TB/s": 16e12, " = 16e12 ": 16e12}
    for text, value in values.items():
        figure = changed(f" GB200 . HBM-bytes_per_s{text}").domains[1].gpu.figure("hbm_bytes_per_s")
        assert figure.value == pytest.approx(value)
        assert figure.kind == Evidence.USER
        assert "8.0 TB/s" in figure.source


def test_the_part_that_is_meant_changes_and_no_other() -> None:
    assert changed("nvlink5.link_bytes_per_s=900e9").domains[0].fabric.link_bytes_per_s.value == 900e9
    assert changed("scale_up.latency_s=1 us").domains[0].fabric.latency_s.value == 1e-6
    for part in ("scale-out", "ib-ndr400"):
        out = changed(f"{part}.link_bytes_per_s=2x")
        assert out.scale_out is not None
        assert out.scale_out.scale_out_bytes_per_s == 100e9
        assert out.domains == RACK.domains
    old, new = RACK.domains[0].gpu.figures, changed("gb200.flop_per_s=2x").domains[0].gpu.figures
    for key, figure in new.items():
        assert figure.value == old[key].value * (2 if key.endswith("flop_per_s") else 1)
    assert changed("gb200-nvl72.rack_power_w=150 kW").domains[0].figures["rack_power_w"].value == 150e3
    price = changed("h800-sxm.usd_per_h=2.5 USD/h", resolve_cluster("hgx-h800").spec).domains[0].gpu
    assert (price.figure("usd_per_h").value, price.figure("usd_per_h").source) == (2.5, "set by the user")


def test_of_several_clusters_those_change_that_have_the_part() -> None:
    clusters = [resolve_cluster("hgx-h100"), resolve_cluster("gb200-nvl72")]
    first, second = overrides(clusters, ["gb200.hbm_bytes=2x"])
    assert first is clusters[0]
    assert second.spec.domains[0].gpu.hbm_bytes == 2 * clusters[1].spec.domains[0].gpu.hbm_bytes
    with pytest.raises(InputError, match=r"none of hgx-h100, gb200-nvl72 has a part 'b300'"):
        overrides(clusters, ["b300.hbm_bytes=2x"])


GRAPH = """
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


def test_a_raw_graph_has_settings_too_and_does_not_repeat(tmp_path: Path) -> None:
    (tmp_path / "raw.yaml").write_text(GRAPH)
    old = resolve_cluster(str(tmp_path / "raw.yaml"))
    (new,) = overrides([old], ["scale-up.link_bytes_per_s=2x", "gpu.hbm_bytes=0.5x"])
    assert new.spec.domains[0].scale_up_bytes_per_s == 2 * old.spec.domains[0].scale_up_bytes_per_s
    assert new.spec.scale_out == old.spec.scale_out
    assert new.spec.domains[1].gpu.hbm_bytes == old.spec.domains[1].gpu.hbm_bytes / 2
    assert new.scale_up_bytes_per_s(0) == 2 * old.scale_up_bytes_per_s(0)
    with pytest.raises(InputError, match="cannot be repeated"):
        repeated(old, 2)
    assert not alike(old.spec)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gb200.hbm_bytes=", "PART.FIGURE=VALUE"),
        ("gb200.hbm_bytes=0", "must be positive and finite"),
        ("gb200.hbm_bytes=1e308x", "differs from 185 GiB by more than 10,000x"),
        ("gb200-nvl72.gpus=144", "cluster YAML"),
        ("gb200.hbm_bytes=80 TB", "too large for the memory of one GPU"),
        ("gb200.hbm_bytes=-2x", "a positive number"),
        ("gb200.hbm=2x", "did you mean hbm_bytes"),
        ("h100.hbm_bytes=2x", "known: gb200, "),
        ("gb200.usd_per_h=2x", "set yours with `prices` gb200=2.50"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match="`settings` ") as refused:
        changed(text)
    assert words in str(refused.value)


# Parts of a cluster, and units that repeat


def view(cluster: Cluster, gpus: range | list[int], name: str = "") -> ClusterView:
    return ClusterView(cluster, [cluster.gpus[gpu].id for gpu in gpus], name)


def test_a_view_has_the_ids_and_links_of_the_whole() -> None:
    whole = resolve_cluster("gb200-nvl72@144")
    part = view(whole, [*range(72, 144), 0, 1, 2, 3, 4])
    assert [gpu.id for gpu in part.gpus[:5]] == [gpu.id for gpu in whole.gpus[:5]]
    assert (part.gpus[5].domain, len(part.gpus)) == (1, 77)
    assert set(part.graph) == set(whole.graph)
    assert (part.name, part.whole, part.spec) == ("part of gb200-nvl72@144", whole, whole.spec)
    assert view(part, range(3)).whole is whole
    again = cluster_from_dict(cluster_to_dict(part))
    assert (again.name, again.gpus, again.whole) == (part.name, part.gpus, part.whole)
    less = rebuilt(part, replace(whole.spec, faults=(Fault(gpu="d0.n0.g1"),)))
    assert len(less.gpus) == 76
    assert rebuilt(less, whole.spec) == part


PRICES = PriceBook(prices={"h100-sxm": 2.0, "gb200": 3.0, "tpu-v5p": 1.0, "switch": 5.0, "transceiver": 0.1})


@pytest.mark.parametrize("name", ["hgx-h100@32", "gb200-nvl72@180", "hgx-h100@512", "tpu-v5p@4x4x8"])
@pytest.mark.parametrize("faulty", [False, True])
def test_bills_of_views_add_up_to_the_whole(name: str, faulty: bool) -> None:
    whole = resolve_cluster(name)
    if faulty:
        whole = broken(name, Fault(gpu=whole.gpus[3].id))
    third = len(whole.gpus) // 3
    parts = [view(whole, range(third)), view(whole, range(third, len(whole.gpus)))]
    bills = [PRICES.bill(cluster) for cluster in [*parts, whole]]
    hours = [bill.usd_per_hour for bill in bills if bill.usd_per_hour is not None]
    assert hours[0] + hours[1] == pytest.approx(hours[2])
    watts = [bill.power_w for bill in bills if bill.power_w is not None]
    assert not watts or watts[0] + watts[1] == pytest.approx(watts[2])


def test_a_unit_repeats_with_its_faults_and_a_view_with_the_whole() -> None:
    twice = repeated(view(resolve_cluster("hgx-h100@32"), range(8, 24)), 2)
    assert (len(twice.gpus), len(twice.whole.gpus)) == (32, 64)
    assert [gpu.domain for gpu in twice.gpus[::8]] == [1, 2, 5, 6]
    link = Fault(link=("d0.n0.g0", "d0.s1"), factor=0.5)
    unit = broken("hgx-h100@16", Fault(gpu="d1.n0.g3"), Fault(gpu="d0.n0.g0", factor=0.5), link)
    twice = repeated(unit, 2)
    assert {gpu.id for gpu in resolve_cluster("hgx-h100@32").gpus} - {gpu.id for gpu in twice.gpus} == {
        *("d1.n0.g3", "d3.n0.g3")
    }
    assert twice.spec.slow_gpus == {"d0.n0.g0": 0.5, "d2.n0.g0": 0.5}
    rates = [twice.scale_up_bytes_per_s(gpu) for gpu in (0, 1, 15, 16)]
    assert rates[0] == rates[2] < rates[1] == rates[3]
    assert repeated(unit, 1) is unit


def test_parts_and_units_that_cannot_be_are_refused() -> None:
    whole = resolve_cluster("hgx-h100@16")
    leaf = next(name for name in whole.graph if name.startswith("f."))
    far = broken("hgx-h100@16", Fault(link=("d0.n0.g0", leaf), factor=0.5))
    alone = build_cluster(replace(resolve_cluster("hgx-h100").spec, scale_out=None))
    for unit, count, words in (
        (far, 2, "spans domains"),
        (alone, 2, "no `fabric` to connect"),
        (whole, 100_000, "at most 1,000,000"),
        (whole, 0, "1 unit or more"),
    ):
        with pytest.raises(InputError, match=words):
            repeated(unit, count)
    with pytest.raises(InputError, match="'d7'"):
        ClusterView(whole, ["d7"])
    with pytest.raises(InputError, match="none of its 1 GPUs is working"):
        ClusterView(broken("hgx-h100@16", Fault(gpu="d0.n0.g1")), ["d0.n0.g1"])
    with pytest.raises(InputError, match="no fabric between domains"):
        changed("scale-out.link_bytes_per_s=2x", alone.spec)
