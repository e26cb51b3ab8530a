"""Options on what GPUs cost and draw, and the lines that every command prints of it."""

from __future__ import annotations

import pytest

from cost.money import PriceBook, Totals, totals_to_dict
from rackplan.options import Money
from rackplan.render.text import text_lines
from rackplan.views.money import dollars, totals_blocks, watts
from topology import resolve_cluster
from topology.errors import InputError


def test_prices_and_powers_given() -> None:
    cluster = resolve_cluster("gb200-nvl72@4")
    money = Money(price_basis="Owner", price=["GB200=3.10"], power=["gb200=1.9kW"])
    assert money.book(cluster) == PriceBook("owner", {"gb200": 3.1}, {"gb200": 1900.0})
    both = Money(price=["gb200=$2".replace("$", ""), "h100=1.5 USD/h"]).book(
        cluster, resolve_cluster("hgx-h100")
    )
    assert both.prices == {"gb200": 2.0, "h100-sxm": 1.5}


@pytest.mark.parametrize(
    ("money", "says"),
    [
        (Money(price=["gb200"]), r"--price gb200: expected a GPU and its figure, like gb200=3\.10"),
        (Money(price=["=3"]), "expected a GPU"),
        (Money(price=["gb200="]), "expected a GPU"),
        (Money(price=["gb200=nan"]), "above 0"),
        (Money(price=["gb200=-3"]), "above 0"),
        (Money(price=["gb200=0"]), "above 0"),
        (Money(price=["gb200=inf"]), "above 0"),
        (Money(price=["gb200=three"]), "not a number with a unit"),
        (Money(price=["gb20=3"]), "did you mean gb200"),
        (Money(price=["h100-sxm=3"]), "no GPU here is called 'h100-sxm'; there are gb200"),
        (Money(price=["gb200=3", "GB200=4"]), "gb200 is given twice"),
        (Money(power=["gb200=1.9"]), "no GPU draws 1.9 W"),
        (Money(power=["gb200=140 kW"]), "watts of one GPU"),
        (Money(power=["gb200=2 USD/h"]), "W is needed here"),
        (Money(price_basis="spot"), "expected owner, neocloud, rental or list"),
    ],
)
def test_what_cannot_be_used_is_refused(money: Money, says: str) -> None:
    with pytest.raises(InputError, match=says):
        money.book(resolve_cluster("gb200-nvl72@4"))


def test_totals_say_basis_kind_and_what_is_left_out() -> None:
    totals = Totals(PriceBook().bill(resolve_cluster("gb200-nvl72")), 128e3, requests_per_s=12.8)
    text = " ".join("\n".join(text_lines(totals_blocks(totals))).split())
    assert "128,000 output tok/s of the 72 GPUs together; 12.8 requests/s" in text
    assert "0.516 USD per million output tokens; 237.60 USD/h" in text
    assert "basis rental; gb200 3.3 USD/h, assumed" in text
    assert "846,561 output tok/s per MW; 151 kW all-in" in text
    assert totals_to_dict(totals)["price_basis"] == "rental"
    assert totals_to_dict(totals)["missing"] == []
    nothing = Totals(PriceBook().bill(resolve_cluster("lecture-8")), 0.0, "input")
    text = " ".join("\n".join(text_lines(totals_blocks(nothing))).split())
    assert "unknown at the rental basis: no price of lecture" in text
    assert "--price lecture" in text
    assert totals_to_dict(nothing)["usd_per_million_tokens"] is None


def test_short_figures() -> None:
    assert [dollars(value) for value in (0.1064, 3.3, 237.6, 12345.6)] == [
        "0.106",
        "3.30",
        "237.60",
        "12,346",
    ]
    assert [watts(value) for value in (700, 2100, 151200, 72.8784e6)] == [
        "700 W",
        "2.10 kW",
        "151 kW",
        "72.9 MW",
    ]
