"""Collectives over links: what each GPU sends, against what nccl-tests and RCCL measure."""

import numpy as np
import pytest

from cost.calibration.collectives import collective_ways, reached
from topology import resolve_cluster
from topology.base.errors import InputError
from topology.routes import (
    COLLECTIVES,
    Router,
    bus_factor,
    collective_traffic,
    pattern_traffic,
)


def ways(name, collective, size=1e9):
    cluster = resolve_cluster(name)
    algorithms = collective_ways(Router(cluster), cluster, collective, size, range(len(cluster.gpus)))
    return {way.algorithm: way.bus_bytes / way.reached_s / 1e9 for way in algorithms}


def sent_and_heard(traffic, gpus):
    sent, heard = np.zeros(gpus), np.zeros(gpus)
    np.add.at(sent, traffic.pairs.sources, traffic.pairs.amounts)
    np.add.at(heard, traffic.pairs.targets, traffic.pairs.amounts)
    return sent, heard


@pytest.mark.parametrize("name", ["hgx-h100", "hgx-h100@32", "gb200-nvl72@144"])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_rings_send_as_much_from_each_gpu(name, collective):
    cluster = resolve_cluster(name)
    gpus = len(cluster.gpus)
    traffic = collective_traffic(collective, "ring", cluster, 8e9, range(gpus))
    for amounts in sent_and_heard(traffic, gpus):
        assert amounts == pytest.approx(np.full(gpus, bus_factor(collective, gpus) * 8e9))


@pytest.mark.parametrize("domains", [2, 3, 5, 8])
def test_trees_carry_the_data_once_up_and_once_down(domains):
    cluster = resolve_cluster(f"hgx-h100@{8 * domains}")
    gpus = 8 * domains
    pairs = collective_traffic("all-reduce", "tree", cluster, 1.0, range(gpus)).pairs
    across = pairs.sources // 8 != pairs.targets // 8
    assert pairs.amounts[across].sum() == pytest.approx(2 * (domains - 1)), (
        "up and down each edge of both trees"
    )
    sent, heard = sent_and_heard(collective_traffic("all-reduce", "tree", cluster, 1.0, range(gpus)), gpus)
    assert sent == pytest.approx(heard)


# nccl-tests #212; coreweave/nccl-tests #43 (839 of bus at 4 GiB); RCCL's 310 to 340 on MI300X
@pytest.mark.parametrize(
    ("name", "collective", "best", "measured"),
    [
        ("hgx-h100", "all-gather", "direct", 370),
        ("hgx-h100", "reduce-scatter", "direct", 370),
        ("hgx-h100", "all-reduce", "in-switch", 480),
        ("gb200-nvl72", "all-reduce", "in-switch", 839),
        ("mi300x", "all-reduce", "direct", 325),
    ],
)
def test_measured_bus_bandwidths(name, collective, best, measured):
    rates = ways(name, collective)
    assert rates[best] == pytest.approx(max(rates.values()))
    assert rates[best] == pytest.approx(measured, rel=0.05)
    assert ("in-switch" in rates) == (collective == "all-reduce" and name != "mi300x"), "nobody measured it"
    assert name != "hgx-h100" or rates["ring"] == pytest.approx(370, rel=0.01)


def test_the_tier_that_is_slowest_at_what_it_reaches_counts():
    cluster = resolve_cluster("hgx-h100@16")
    loads = Router(cluster).loads(pattern_traffic("all-to-all", 16, 1e9))
    slowest = reached(cluster, loads)
    assert slowest.tier == "ib-ndr400 leaf"
    assert slowest.times == pytest.approx(1 / 0.97)
    assert reached(cluster, loads, all_to_all=True).times == pytest.approx(1 / 0.921)
    row = pattern_traffic("zipf:1", 16, 1e9).row
    assert row == pytest.approx(row[0] / np.arange(1, 17))
    with pytest.raises(InputError, match="zipf:11: expected an exponent"):
        pattern_traffic("zipf:11", 16, 1e9)
