"""Parts of a cluster and units that repeat: their ids, links, faults and bills, and what cannot repeat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cost.money.prices import PriceBook
from topology import ClusterView, InputError, resolve_cluster
from topology.build import build_cluster, raw_cluster_spec, rebuilt
from topology.changes.repeat import alike, repeated
from topology.cluster import Cluster
from topology.files.cluster_data import cluster_from_dict, cluster_to_dict
from topology.spec import Fault, RawLink, RawNode, RawTopology


def view(cluster: Cluster, gpus: range | list[int], name: str = "") -> ClusterView:
    return ClusterView(cluster, [cluster.gpus[gpu].id for gpu in gpus], name)


def test_ids_and_links_are_those_of_the_whole() -> None:
    whole = resolve_cluster("gb200-nvl72@144")
    part = view(whole, [*range(72, 144), 0, 1, 2, 3, 4])
    assert [gpu.id for gpu in part.gpus[:5]] == [gpu.id for gpu in whole.gpus[:5]]
    assert part.gpus[5].domain == 1
    assert len(part.gpus) == 77
    assert set(part.graph) == set(whole.graph)
    assert (part.name, part.whole, part.spec) == ("part of gb200-nvl72@144", whole, whole.spec)
    assert view(part, range(3)).whole is whole


def test_it_is_read_back() -> None:
    part = view(resolve_cluster("hgx-h100@16"), range(4, 12), "mine")
    again = cluster_from_dict(cluster_to_dict(part))
    assert (again.name, again.gpus, again.whole) == ("mine", part.gpus, part.whole)


def test_a_fault_takes_gpus_from_a_view_and_its_end_brings_them_back() -> None:
    whole = resolve_cluster("gb200-nvl72@72")
    part = view(whole, range(8))
    less = rebuilt(part, replace(whole.spec, faults=(Fault(gpu="d0.n0.g1"),)))
    assert len(less.gpus) == 7
    assert rebuilt(less, whole.spec) == part


def test_what_is_not_there_is_refused() -> None:
    whole = resolve_cluster("hgx-h100@16")
    with pytest.raises(InputError, match="'d7'"):
        ClusterView(whole, ["d7"])
    broken = build_cluster(replace(whole.spec, faults=(Fault(gpu="d0.n0.g1"),)))
    with pytest.raises(InputError, match="none of its 1 GPUs is working"):
        ClusterView(broken, ["d0.n0.g1"])


PRICES = PriceBook(prices={"h100-sxm": 2.0, "gb200": 3.0, "tpu-v5p": 1.0, "switch": 5.0, "transceiver": 0.1})


@pytest.mark.parametrize("name", ["hgx-h100@32", "gb200-nvl72@180", "hgx-h100@512", "tpu-v5p@4x4x8"])
@pytest.mark.parametrize("broken", [False, True])
def test_bills_of_views_add_up_to_the_whole(name: str, broken: bool) -> None:
    whole = resolve_cluster(name)
    if broken:
        whole = build_cluster(replace(whole.spec, faults=(Fault(gpu=whole.gpus[3].id),)))
    third = len(whole.gpus) // 3
    views = [view(whole, range(third)), view(whole, range(third, len(whole.gpus)))]
    bills = [PRICES.bill(one) for one in [*views, whole]]
    hours = [bill.usd_per_hour for bill in bills if bill.usd_per_hour is not None]
    assert hours[0] + hours[1] == pytest.approx(hours[2])
    watts = [bill.power_w for bill in bills if bill.power_w is not None]
    assert not watts or watts[0] + watts[1] == pytest.approx(watts[2])


def test_a_view_repeats_with_the_whole() -> None:
    whole = resolve_cluster("hgx-h100@32")
    twice = repeated(view(whole, range(8, 24)), 2)
    assert (len(twice.gpus), len(twice.whole.gpus)) == (32, 64)
    assert [gpu.domain for gpu in twice.gpus[::8]] == [1, 2, 5, 6]


def test_domains_follow_each_other_and_so_do_faults() -> None:
    spec = resolve_cluster("hgx-h100@16").spec
    unit = build_cluster(replace(spec, faults=(Fault(gpu="d1.n0.g3"), Fault(gpu="d0.n0.g0", factor=0.5))))
    twice = repeated(unit, 2)
    gone = {gpu.id for gpu in repeated(build_cluster(spec), 2).gpus} - {gpu.id for gpu in twice.gpus}
    assert gone == {"d1.n0.g3", "d3.n0.g3"}
    assert twice.spec.slow_gpus == {"d0.n0.g0": 0.5, "d2.n0.g0": 0.5}
    assert len(twice.gpus) == 2 * len(unit.gpus)
    assert repeated(unit, 1) is unit


def test_links_inside_domains_repeat() -> None:
    spec = resolve_cluster("hgx-h100").spec
    unit = build_cluster(replace(spec, faults=(Fault(link=("d0.n0.g0", "d0.s1"), factor=0.5),)))
    rates = [repeated(unit, 2).scale_up_bytes_per_s(gpu) for gpu in (0, 1, 8, 9)]
    assert rates[0] == rates[2] < rates[1] == rates[3]


def test_what_cannot_repeat_is_refused() -> None:
    spec = resolve_cluster("hgx-h100@16").spec
    leaf = next(name for name in build_cluster(spec).graph if name.startswith("f."))
    far = build_cluster(replace(spec, faults=(Fault(link=("d0.n0.g0", leaf), factor=0.5),)))
    with pytest.raises(InputError, match="spans domains"):
        repeated(far, 2)
    with pytest.raises(InputError, match="no `fabric` to connect"):
        repeated(build_cluster(replace(resolve_cluster("hgx-h100").spec, scale_out=None)), 2)
    with pytest.raises(InputError, match="at most 1,000,000"):
        repeated(build_cluster(spec), 100_000)
    with pytest.raises(InputError, match="1 unit or more"):
        repeated(build_cluster(spec), 0)


def test_a_raw_graph_does_not_repeat() -> None:
    spec = resolve_cluster("hgx-h100").spec
    gpu = spec.domains[0].gpu
    nodes = tuple(RawNode(f"g{i}", "gpu", domain="a", gpu=gpu) for i in range(2))
    raw = RawTopology(nodes, (RawLink(("g0", "g1"), spec.domains[0].fabric),))
    unit = build_cluster(raw_cluster_spec("two", raw))
    with pytest.raises(InputError, match="cannot be repeated"):
        repeated(unit, 2)
    assert not alike(unit.spec)
