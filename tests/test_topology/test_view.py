"""A view of a cluster: ids, links and faults of the whole; what its views take adds up to what the whole takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cost.money.prices import PriceBook
from topology import ClusterView, Fault, InputError, build_cluster, resolve_cluster
from topology.build import rebuilt
from topology.changes.repeat import repeated
from topology.files.cluster_data import cluster_from_dict, cluster_to_dict

if TYPE_CHECKING:
    from topology.cluster import Cluster


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
