"""What GPUs and the network between domains cost and draw, where the figures are from, and what a budget buys."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from cost.money.bill import HOURS_PER_YEAR, Bill, BillPart
from cost.money.budget import clusters_within
from cost.money.network import count_parts, network_parts, transceiver_power
from cost.money.prices import PRICE_BASES, PriceBook
from topology import Evidence, InputError, MissingFigureError, load_gpu, resolve_cluster
from topology.base.figures import WrittenFigure
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
    # InferenceX's own page: 5,789.6 tok/s of a GB200 at 2.21 USD/h and 2,100 W
    price, power = (WrittenFigure(*figure, "user", "") for figure in ((2.21, "USD/h"), (2100, "W")))
    published = Bill.of("owner", [BillPart("gb200", 1, price, power)])
    assert published.usd_per_million(5789.6) == pytest.approx(0.106, abs=5e-4)
    assert published.tok_s_per_megawatt(5789.6) == pytest.approx(2.757e6, rel=2e-4)


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
    assert bill.parts[2].usd_per_hour.kind == "user"
    # what rests on all of them is as weak as the weakest
    assert bill.price_kind == "assumed"
    some = book.bill(cluster, ["d0.n0.g0", "d3.n0.g1"])
    assert (some.gpus, some.usd_per_hour) == (2, pytest.approx(3.30 + 1.1))
    assert book.bill(cluster, []).usd_per_hour == 0
    unknown = PriceBook("list").bill(cluster)
    assert (unknown.usd_per_hour, unknown.power_w, unknown.usd_per_million(1.0)) == (None, None, None)
    assert "h20-sxm: the catalog has no list price" in unknown.missing[0]
    assert unknown.parts[0].usd_per_hour is not None, "the others keep theirs"


def test_absurd_figures_and_ids_are_refused(mixed: Path) -> None:
    for value in (0.0, math.nan, math.inf, 1e200):
        with pytest.raises(InputError, match="`prices` gb200"):
            PriceBook(prices={"gb200": value})
        with pytest.raises(InputError, match="`powers` gb200"):
            PriceBook(powers={"gb200": value})
    with pytest.raises(MissingFigureError, match="or use basis owner or neocloud or rental"):
        PriceBook("list").price(load_gpu("mi325x"))
    # the chip's own 400 W is no all-in power
    with pytest.raises(MissingFigureError, match=r"gpus: \{h20-sxm: \{power_w: 2\.1 kW\}\}"):
        PriceBook().power(load_gpu("h20-sxm"))
    with pytest.raises(InputError, match="`price_basis` 'rent': expected owner, neocloud, rental or list"):
        PriceBook("rent")
    cluster = resolve_cluster(str(mixed))
    with pytest.raises(InputError, match="no working GPU with this id"):
        PriceBook().bill(cluster, ["d1.n0.g0"])
    with pytest.raises(InputError, match="duplicate"):
        PriceBook().bill(cluster, ["d0.n0.g0", "d0.n0.g0"])


def test_a_system_without_an_all_in_figure_has_that_of_its_racks() -> None:
    bill = PriceBook().bill(resolve_cluster("cm384@1536"))
    assert bill.power_w == pytest.approx(2 * 559e3)
    assert (bill.power_kind, bill.parts[0].all_in) == ("assumed", False)
    notes = " ".join(bill.missing)
    for words in (
        "without cooling and conversion",
        "switch between domains: the catalog has no power",
        "transceiver of roce-910c: the catalog has no power",
    ):
        assert words in notes
    # a rack that is partly filled draws the share of its GPUs, as with an all-in figure of each
    assert PriceBook().bill(resolve_cluster("cm384@1152")).power_w == pytest.approx(1.5 * 559e3)


def test_switches_and_optics_count_where_no_other_figure_has_them() -> None:
    cluster = resolve_cluster("cm384@1536")
    book = PriceBook(powers={"switch": 1000.0, "transceiver": 15.0})
    bill = book.bill(cluster)
    counts = physical_of_whole(cluster)
    switches = counts.switches["leaf"] + counts.switches["spine"]
    (optical,) = (row.optical_links for row in counts.cabling if not row.scale_up)
    assert [(part.name, part.count) for part in bill.parts[1:]] == [
        ("switch between domains", switches),
        ("transceiver of roce-910c", 2 * optical),
    ]
    assert bill.power_w == pytest.approx(1118e3 + 1000 * switches + 15 * 2 * optical)
    half = book.bill(cluster, [gpu.id for gpu in cluster.gpus if gpu.domain == 0])
    assert half.power_w == pytest.approx(bill.power_w / 2)
    # an all-in figure has its share of them
    assert PriceBook().bill(resolve_cluster("gb200-nvl72@144")).parts[1:] == ()
    for figures in ({"powers": {"switch": 1e3}}, {"prices": {"transceiver": 0.1}}):
        with pytest.raises(InputError, match="of gb200 already includes its share of the network"):
            PriceBook(**figures).bill(resolve_cluster("gb200-nvl72@144"))


# --- prices and powers of GPUs


def test_the_users_price_and_power_go_first(tmp_path: Path) -> None:
    own = MIXED + "prices: {gb200: 9 USD/h}\ngpus: {gb200: {power_w: 2.5 kW}}\n"
    path = tmp_path / "mine.yaml"
    path.write_text(own, encoding="utf-8")
    cluster = resolve_cluster(str(path))
    gb200 = cluster.spec.domains[0].gpu
    for basis in PRICE_BASES:
        assert PriceBook(basis).price(gb200).value == 9
        assert PriceBook(basis).price(gb200).kind is Evidence.USER
    assert PriceBook().power(gb200).value == 2500
    other = cluster.spec.domains[1].gpu  # its own figures stay
    assert (PriceBook("rental").price(other).value, PriceBook().power(other).value) == (1.30, 1730)


# --- the network between domains


def test_parts_by_hand() -> None:
    # two hosts on a rail fabric: a leaf for each of 8 rails, 4 spine planes of the reference unit
    cluster = resolve_cluster("hgx-h100@16")
    parts = network_parts(cluster)
    assert [part.name for part in parts] == ["switch between domains", "transceiver of ib-ndr400"]
    graph = cluster.graph
    switches = [node for node, data in graph.nodes(data=True) if data["kind"] in ("leaf", "spine")]
    links = sum(data["count"] for a, b, data in graph.edges(data=True) if data["fabric"] == "ib-ndr400")
    assert count_parts(cluster, parts) == ([len(switches), 2 * links], "")
    book = PriceBook(prices={"h100-sxm": 1.0, "switch": 2.0}, powers={"h100-sxm": 800.0, "switch": 1000.0})
    bill = book.bill(cluster)
    assert bill.power_w == pytest.approx(16 * 800 + 1000 * len(switches) + 9 * 2 * links)
    assert bill.usd_per_hour == pytest.approx(16 + 2 * len(switches))
    assert {part.power_w.kind for part in bill.parts[1:] if part.power_w} == {"user", "datasheet"}
    assert (transceiver_power(50e9).value, transceiver_power(100e9)) == (9, None)


def test_whole_domains_within_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    unit, book = resolve_cluster("hgx-h100"), PriceBook(prices={"h100-sxm": 2.0})
    (few,), scales = clusters_within(book, [unit], usd_h=50.0)
    assert (few.name, len(few.gpus), scales) == ("hgx-h100@24", 24, {"hgx-h100@24": 1.0})
    assert clusters_within(book, [unit], usd_h=1.0)[0][0].name == "hgx-h100"
    monkeypatch.setattr("cost.money.budget.MAX_JOINED_GPUS", 16)
    (part,), scales = clusters_within(book, [unit], usd_h=50.0)
    assert (part.name, len(part.gpus), scales) == ("hgx-h100@24", 16, {"hgx-h100@24": 1.5})
