"""What the GPUs of a cluster cost and draw."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost.money.bill import HOURS_PER_YEAR, Bill
from cost.money.prices import PriceBook
from topology import InputError, resolve_cluster
from topology.build import build_cluster
from topology.physical import physical_of_whole

MIXED = """
name: mixed
domains:
  - {part: gb200-nvl72, gpus: 8}
  - {part: hgx-h100, count: 2}
  - {part: hgx-h20, count: 1}
fabric: {kind: leaf-spine, nic: 400 Gb/s}
broken: [{gpu: d1.n0.g0}]
"""


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.yaml"
    path.write_text(MIXED, encoding="utf-8")
    return path


def test_a_rack_by_hand() -> None:
    bill = PriceBook().bill(resolve_cluster("gb200-nvl72"))
    assert (bill.price_basis, bill.gpus) == ("rental", 72)
    assert (bill.price_kind, bill.power_kind) == ("assumed", "assumed")
    assert bill.usd_per_hour == pytest.approx(72 * 3.30)
    assert bill.power_w == pytest.approx(72 * 2100)
    assert bill.usd_per_year == pytest.approx(72 * 3.30 * HOURS_PER_YEAR)
    # 128 thousand tok/s of a rack
    assert bill.usd_per_million(128e3) == pytest.approx(1e6 * 237.6 / 3600 / 128e3)
    assert bill.tok_s_per_megawatt(128e3) == pytest.approx(128e3 / 0.1512)
    assert bill.usd_per_million(np.array([1e3, 2e3])) == pytest.approx([66.0, 33.0])


def test_gpus_that_work_are_paid_for_by_kind(mixed: Path) -> None:
    cluster = resolve_cluster(str(mixed))
    book = PriceBook(prices={"h20-sxm": 1.1}, powers={"h20-sxm": 900})
    bill = book.bill(cluster)
    assert [(part.name, part.count) for part in bill.parts] == [
        ("gb200", 8),
        ("h100-sxm", 15),
        ("h20-sxm", 8),
    ]
    assert bill.usd_per_hour == pytest.approx(8 * 3.30 + 15 * 1.30 + 8 * 1.1)
    assert bill.power_w == pytest.approx(8 * 2100 + 15 * 1730 + 8 * 900)
    assert bill.parts[2].usd_per_hour is not None
    assert bill.parts[2].usd_per_hour.kind == "user"
    # what rests on all of them is as weak as the weakest
    assert bill.price_kind == "assumed"
    some = book.bill(cluster, ["d0.n0.g0", "d3.n0.g1"])
    assert (some.gpus, some.usd_per_hour) == (2, pytest.approx(3.30 + 1.1))
    assert book.bill(cluster, []).usd_per_hour == 0


def test_what_has_no_figure_is_left_out_and_says_how_to_give_it(mixed: Path) -> None:
    bill = PriceBook("list").bill(resolve_cluster(str(mixed)))
    assert (bill.usd_per_hour, bill.power_w, bill.price_kind, bill.usd_per_year) == (None,) * 4
    assert (bill.usd_per_million(1.0), bill.tok_s_per_megawatt(1.0)) == (None, None)
    price, power = bill.missing
    assert "h20-sxm: the catalog has no list price" in price
    assert "`prices` h20-sxm=2.50" in price
    assert "h20-sxm: the catalog has no all-in power" in power
    # the others keep theirs
    assert bill.parts[0].usd_per_hour is not None


def test_absurd_figures_and_ids_are_refused(mixed: Path) -> None:
    for value in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="`prices` gb200"):
            PriceBook(prices={"gb200": value})
        with pytest.raises(InputError, match="`powers` gb200"):
            PriceBook(powers={"gb200": value})
    with pytest.raises(InputError, match="`price_basis` 'rent': expected owner, neocloud, rental or list"):
        PriceBook("rent")
    for absurd in ({"prices": {"gb200": 1e200}}, {"powers": {"gb200": 1e200}}, {"powers": {"gb200": 1e-200}}):
        with pytest.raises(InputError, match="check its unit"):
            PriceBook(**absurd)
    cluster = resolve_cluster(str(mixed))
    with pytest.raises(InputError, match="no working GPU with this id"):
        PriceBook().bill(cluster, ["d1.n0.g0"])
    with pytest.raises(InputError, match="duplicate"):
        PriceBook().bill(cluster, ["d0.n0.g0", "d0.n0.g0"])


def test_equal_domains_are_one_part_whichever_object_they_are(mixed: Path) -> None:
    cluster = resolve_cluster(str(mixed))
    copied = replace(cluster.spec, domains=tuple(map(deepcopy, cluster.spec.domains)))
    assert PriceBook().bill(build_cluster(copied)) == PriceBook().bill(cluster)


def test_parts_of_a_cluster_add_up_to_the_whole(mixed: Path) -> None:
    cluster, book = resolve_cluster(str(mixed)), PriceBook(prices={"h20-sxm": 1.1}, powers={"h20-sxm": 900})
    ids = [gpu.id for gpu in cluster.gpus]
    whole = book.bill(cluster)
    assert Bill.together([book.bill(cluster, ids[:13]), book.bill(cluster, ids[13:])]) == whole
    twice = whole.times(2)
    assert (twice.gpus, twice.usd_per_hour) == (2 * whole.gpus, pytest.approx(2 * whole.usd_per_hour))


def test_totals_are_written_as_they_are() -> None:
    cluster = resolve_cluster("hgx-h100@16")
    book = PriceBook(prices={"h100-sxm": 2.5}, powers={"h100-sxm": 1500})
    used = book.bill(cluster, [gpu.id for gpu in cluster.gpus[:8]])
    data = book.bill(cluster).totals(1000.0, phase="decode", gpus_idle=8, used=used).to_dict()
    figure = {"value": 2.5, "unit": "USD/h", "kind": "user", "source": "the price given"}
    assert data["parts"][0]["usd_per_hour"] == figure
    assert (data["usd_per_hour"], data["power_w"], data["tok_s_per_gpu"]) == (40, 24000, 62.5)
    assert data["usd_per_million_tokens"] == pytest.approx(40 / 3.6)
    assert data["tok_s_per_mw"] == pytest.approx(1000 / 0.024)
    assert (data["used"]["gpus"], data["used"]["usd_per_hour"], data["used"]["tok_s_per_gpu"]) == (8, 20, 125)
    idle = book.bill(cluster).totals(0.0)
    assert (idle.usd_per_million_tokens, idle.tok_s_per_mw) == (None, None)


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e3), st.floats(1.01, 10))
def test_dearer_or_slower_is_never_cheaper(tok_s: float, usd: float, times: float) -> None:
    cluster = resolve_cluster("gb200-nvl72@4")

    def cost(price: float, rate: float) -> float:
        found = PriceBook(prices={"gb200": price}).bill(cluster).usd_per_million(rate)
        assert found is not None
        return found

    assert cost(usd, tok_s * times) < cost(usd, tok_s) < cost(usd * times, tok_s)


def test_a_system_without_an_all_in_figure_has_that_of_its_racks() -> None:
    bill = PriceBook().bill(resolve_cluster("vr-nvl72@144"))
    assert bill.power_w == pytest.approx(2 * 230e3)
    assert (bill.power_kind, bill.parts[0].all_in) == ("projected", False)
    said = " ".join(bill.missing)
    for words in (
        "without cooling and conversion",
        "switch between domains: the catalog has no power",
        "transceiver of ib-cx9: the catalog has no power",
    ):
        assert words in said
    # a rack that is partly filled draws the share of its GPUs, as with an all-in figure of each
    assert PriceBook().bill(resolve_cluster("vr-nvl72@108")).power_w == pytest.approx(1.5 * 230e3)


def test_switches_and_optics_count_where_no_other_figure_has_them() -> None:
    cluster = resolve_cluster("vr-nvl72@144")
    book = PriceBook(powers={"switch": 1000.0, "transceiver": 15.0})
    bill = book.bill(cluster)
    counts = physical_of_whole(cluster)
    switches = counts.switches["leaf"] + counts.switches["spine"]
    assert [(part.name, part.count) for part in bill.parts[1:]] == [
        ("switch between domains", switches),
        ("transceiver of ib-cx9", 2 * counts.optical_links),
    ]
    assert bill.power_w == pytest.approx(460e3 + 1000 * switches + 15 * 2 * counts.optical_links)
    half = book.bill(cluster, [gpu.id for gpu in cluster.gpus if gpu.domain == 0])
    assert half.power_w == pytest.approx(bill.power_w / 2)
    # an all-in figure has its share of them
    assert PriceBook().bill(resolve_cluster("gb200-nvl72@144")).parts[1:] == ()
    for figures in ({"powers": {"switch": 1e3}}, {"prices": {"transceiver": 0.1}}):
        with pytest.raises(InputError, match="of gb200 already includes its share of the network"):
            PriceBook(**figures).bill(resolve_cluster("gb200-nvl72@144"))


def test_a_published_transceiver_counts_beside_figures_without_the_network() -> None:
    cluster = resolve_cluster("hgx-h100@16")
    book = PriceBook(prices={"h100-sxm": 1.0, "switch": 2.0}, powers={"h100-sxm": 800.0, "switch": 1000.0})
    bill = book.bill(cluster)
    switches = sum(count for kind, count in physical_of_whole(cluster).switches.items() if kind != "switch")
    optics = 2 * physical_of_whole(cluster).optical_links
    assert bill.power_w == pytest.approx(16 * 800 + 1000 * switches + 9 * optics)
    assert bill.usd_per_hour == pytest.approx(16 + 2 * switches)
    assert {part.power_w.kind for part in bill.parts[1:] if part.power_w} == {"user", "datasheet"}
