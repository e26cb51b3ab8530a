"""Prices and powers of GPUs, and what they make of a throughput."""

from __future__ import annotations

from pathlib import Path

import pytest

from cost.money.bill import Bill, BillPart
from cost.money.prices import PRICE_BASES, PriceBook, billed_figures
from topology import Evidence, InputError, MissingFigureError, gpu_names, load_gpu, resolve_cluster
from topology.base.figures import WrittenFigure
from topology.catalog import FigureFile

MIXED = """
name: mixed
domains:
  - {part: gb200-nvl72, count: 1}
  - {part: hgx-h100, count: 3}
fabric: {kind: leaf-spine, nic: 400 Gb/s}
"""


def test_published_checks() -> None:
    price, power = (WrittenFigure(*one, "user", "") for one in ((2.21, "USD/h"), (2100, "W")))
    bill = Bill.of("owner", [BillPart("gb200", 1, price, power)])
    assert bill.usd_per_million(5789.6) == pytest.approx(0.106, abs=5e-4)
    assert bill.tok_s_per_megawatt(5789.6) == pytest.approx(2.757e6, rel=2e-4)


@pytest.mark.parametrize(
    ("gpu", "kw", "usd"),
    [
        ("h100-sxm", 1.73, (1.30, 1.69, 1.30, 3.95)),
        ("b300-sxm", 2.17, (2.34, 2.808, 3.48, 7.85)),
        ("gb200", 2.10, (2.21, 2.75, 3.30, 10.58)),
        ("mi355x", 2.65, (1.48, 1.90, 2.10, 8.60)),
    ],
)
def test_catalog_rows(gpu: str, kw: float, usd: tuple[float, ...]) -> None:
    spec = load_gpu(gpu)
    assert PriceBook().power(spec).value == pytest.approx(kw * 1000)
    assert [PriceBook(basis).price(spec).value for basis in PRICE_BASES] == pytest.approx(usd)


def test_every_entry_is_a_known_gpu_with_sourced_figures() -> None:
    names = billed_figures()
    assert set(names) <= set(gpu_names())
    for name in names:
        for figure in (
            PriceBook().power(load_gpu(name)),
            *(PriceBook(basis).price(load_gpu(name)) for basis in PRICE_BASES[:3]),
        ):
            assert figure.kind is Evidence.ASSUMED
            assert "InferenceX" in figure.source


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


def test_missing_figures_say_how_to_give_them() -> None:
    with pytest.raises(MissingFigureError, match=r"prices: \{h20-sxm: 2\.5 USD/h\}`\.$"):
        PriceBook("rental").price(load_gpu("h20-sxm"))
    with pytest.raises(MissingFigureError, match="or use basis list"):
        PriceBook("owner").price(load_gpu("tpu-v5p"))
    with pytest.raises(MissingFigureError, match="or use basis owner or neocloud or rental"):
        PriceBook("list").price(load_gpu("gb300"))
    # the chip's own 400 W is no all-in power
    with pytest.raises(MissingFigureError, match=r"gpus: \{h20-sxm: \{power_w: 2\.1 kW\}\}"):
        PriceBook().power(load_gpu("h20-sxm"))
    with pytest.raises(InputError, match="`price_basis` 'rent': expected owner, neocloud, rental or list"):
        PriceBook("rent").price(load_gpu("gb200"))


def test_a_source_must_be_listed(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        "sources: {a: somebody}\ngpus: {g: {p: {value: 1 kW, kind: assumed, source: b}}}\n", encoding="utf-8"
    )
    file = FigureFile.read(path, "gpus")
    with pytest.raises(InputError, match="'b' is not among the file's sources"):
        file.figures({"p": "W"})
