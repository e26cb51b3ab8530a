"""Every output says how far off this chip's figures are, and says the same as docs/calibration.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cost.calibration.errors import ErrorFigures, ErrorOf, error_table
from helpers import error_of
from placement.plan_file import read_plan
from rackplan.views.blocks import Table, Text
from rackplan.views.words import band_words, error_blocks, error_words, range_words

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., Any]

PAGE = Path(__file__).parents[2] / "docs" / "calibration.md"
CLUSTERS = {
    "h100-sxm": "hgx-h100",
    "h200-sxm": "hgx-h200",
    "b200-sxm": "hgx-b200",
    "b300-sxm": "hgx-b300",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "h20-sxm": "hgx-h20",
    "h800-sxm": "hgx-h800",
    "ascend-910c": "cm384@16",
}
SERVED = [chip for chip, kind in error_table().rows_of.items() if kind == "served"]
DENSE, MOE = ("--model", "llama-3.1-8b"), ("--model", "mixtral-8x7b")
FAST = ("--time-limit", "0", "-o", "plan")
NUMBER = r"([\d.,]+)"
SAID = re.compile(
    rf"fitted to served requests on (\S+) \(all engines; {NUMBER} measured rows, cross-validated median error "
    rf"{NUMBER}%, {NUMBER}% within 20%; with \1 left out of the fit {NUMBER}% and {NUMBER}%\)"
)
BAND = re.compile(
    rf"{NUMBER} output tok/s/GPU \({NUMBER} to {NUMBER}: 80% of (.*?) are within a factor {NUMBER}\)"
)


def one_line(text: str) -> str:
    return " ".join(text.split())


def documented() -> dict[str, dict[str, str]]:
    """The table of chips in docs/calibration.md, the engine not named, by chip and column."""
    table = re.search(r"<!-- errors:begin chips -->\n(.*?)\n<!-- errors:end -->", PAGE.read_text(), re.DOTALL)
    assert table is not None
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]
    columns = (
        "rows",
        "in_sample",
        "median",
        "mean",
        "within",
        "bias",
        "band",
        "out",
        "out_within",
        "out_band",
    )
    return {row[0]: dict(zip(columns, row[1:], strict=True)) for row in rows[2:]}


def test_every_measured_chip_is_documented() -> None:
    assert set(documented()) == set(CLUSTERS) == set(error_table().chips)


@pytest.mark.parametrize("chip", SERVED)
def test_the_summary_says_what_the_page_says(run: Run, chip: str) -> None:
    out = run("plan", *DENSE, "--cluster", CLUSTERS[chip], *FAST).out
    assert max(map(len, out.splitlines())) <= 100
    said, band, page = SAID.search(one_line(out)), BAND.search(one_line(out)), documented()[chip]
    assert said is not None, out
    assert band is not None, out
    names = ("rows", "median", "within", "out", "out_within")
    assert said[1] == chip
    assert dict(zip(names, said.groups()[1:], strict=True)) == {n: page[n].removesuffix(" %") for n in names}
    assert (band[4], band[5]) == ("measured rows", page["band"])
    rate, low, high = (float(band[i].replace(",", "")) for i in (1, 2, 3))
    assert low == pytest.approx(rate / float(band[5]), rel=0.06)  # two digits
    assert high == pytest.approx(rate * float(band[5]), rel=0.06)
    found = json.loads(Path("plan/plan.json").read_text())["score"]["calibration"]
    assert (found["chip"], found["stand_in_for"], found["engine"], found["phase"]) == (
        chip,
        None,
        "any",
        "any",
    )
    assert f"{found['rows']:,}" == page["rows"]
    assert f"{found['median_abs_error']:.1%}" == page["median"].replace(" ", "")
    assert f"{found['within_20_percent']:.0%}" == page["within"].replace(" ", "")
    assert f"{found['left_out_median_abs_error']:.1%}" == page["out"].replace(" ", "")
    assert f"{found['left_out_within_20_percent']:.0%}" == page["out_within"].replace(" ", "")
    assert f"{found['band']:.2f}" == page["band"]


@pytest.mark.parametrize(
    ("cluster", "chip"), [("mi300x", "mi300x"), ("vr-nvl72", "rubin"), ("tpu-v5p@4x4x4", "tpu-v5p")]
)
def test_an_unmeasured_chip_names_its_stand_in_and_a_band(run: Run, cluster: str, chip: str) -> None:
    result = run("plan", *DENSE, "--cluster", cluster, *FAST)
    out, band = one_line(result.out), error_of(chip).band
    assert f"nobody measured {chip}, its neighbour stands in: what kernels reach is fitted to" in out
    assert f"80% of the rows of a chip left out of the fit are within a factor {band:.2f})" in out
    found = json.loads(Path("plan/plan.json").read_text())["score"]["calibration"]
    assert (found["chip"], found["stand_in_for"]) == (error_of(chip).chip, chip)
    assert found["band"] == band == max(float(documented()[other]["out_band"]) for other in SERVED)
    assert found["left_out_chip"] in SERVED


@pytest.mark.parametrize("chip", ["h20-sxm", "h800-sxm", "ascend-910c"])
def test_a_chip_with_few_rows_says_so(run: Run, chip: str) -> None:
    out = one_line(run("plan", *DENSE, "--cluster", CLUSTERS[chip], *FAST).out)
    rows = documented()[chip]["rows"]
    words = f"fitted to published figures on {chip} (all engines; {rows} measured rows, too few for an error of their"
    assert words in out
    assert "a chip left out of the fit, " in out


@pytest.mark.wide
def test_every_command_says_it(run: Run) -> None:
    assert run("plan", *MOE, "--cluster", "hgx-h100", *FAST).code == 0
    band = f"are within a factor {error_of('h100-sxm').band:.2f})"
    planned = json.loads(Path("plan/plan.json").read_text())["score"]["calibration"]
    for command in (
        ("score", "plan/plan.json"),
        ("explain", "plan/plan.json"),
        ("replan", "plan/plan.json", "--time-limit", "0", "-o", "b"),
    ):
        out = one_line(run(*command).out)
        assert band in out, command
        assert SAID.search(out) is not None, command
        data = run(*command, "--json").data
        assert data.get("score", data)["calibration"] == planned, command
    sweep = ("sweep", *MOE, "--cluster", "hgx-h100")
    out = one_line(run(*sweep).out)
    assert SAID.search(out) is not None
    assert f"of tok/s/GPU: 80% of measured rows {band.removesuffix(')')}" in out
    assert run(*sweep, "--json").data["calibration"] == planned
    report = Path("plan/report.html").read_text()
    assert BAND.search(report) is not None
    assert SAID.search(report) is not None


def test_both_pools_have_the_error_of_such_rows(run: Run) -> None:
    sweep = ("sweep", *MOE, "--cluster", "hgx-h200", "--isl", "2000", "--osl", "500")
    wanted = error_of("h200-sxm", "", "disaggregated")
    assert f"are within a factor {wanted.band:.2f}) over 8 GPUs, " in one_line(run(*sweep).out)
    data = run(*sweep, "--json").data["rate_matching"]["calibration"]
    assert (data["phase"], data["rows"], data["band"]) == ("disaggregated", wanted.rows, wanted.band)


@pytest.mark.wide
def test_a_comparison_says_it_of_each_cluster(run: Run) -> None:
    clusters = ("hgx-h100", "hgx-h20", "mi300x")
    result = run("compare", *clusters, *MOE, "-o", "out")
    assert max(map(len, result.out.splitlines())) <= 100
    for cluster, chip, own in (
        ("hgx-h100", "h100-sxm", "h100-sxm"),
        ("hgx-h20", "h20-sxm", "h20-sxm"),
        ("mi300x", "mi300x", f"{error_of('mi300x').chip}, for mi300x"),
    ):
        found = error_of(chip)
        few = found.rows < 20
        cells = (own, f"{found.rows:,}", "-" if few else f"{found.median:.1%}", f"{found.band:.2f}")
        (line,) = (line for line in result.out.splitlines() if line.split()[:1] == [cluster] and own in line)
        for cell in cells:
            assert cell in line, cluster
    rows = json.loads(Path("out/compare.json").read_text())["rows"]
    assert [row["calibration"]["stand_in_for"] for row in rows] == [None, None, "mi300x"]
    assert "how far off" in Path("out/report.html").read_text()


@pytest.mark.wide
def test_a_cluster_of_two_chips_says_each(run: Run, tmp_path: Path) -> None:
    domains = "- {part: hgx-h100}\n- {part: hgx-h200}\n"
    (tmp_path / "c.yaml").write_text(f"name: c\ndomains:\n{domains}fabric: {{kind: rail, nic: 400 Gb/s}}\n")
    asked = (*MOE, "--cluster", "c.yaml", "--stages", "2")
    out = one_line(run("plan", *asked, *FAST).out)
    assert {found[1] for found in SAID.finditer(out)} == {"h100-sxm", "h200-sxm"}
    found = json.loads(Path("plan/plan.json").read_text())["score"]["calibration"]
    assert sorted(one["chip"] for one in found["each"]) == ["h100-sxm", "h200-sxm"]
    assert found["band"] == max(one["band"] for one in found["each"])


def test_plan_files_without_it_are_read(run: Run) -> None:
    run("plan", *DENSE, "--cluster", "hgx-h100", *FAST)
    data = json.loads(Path("plan/plan.json").read_text())
    del data["score"]["calibration"]
    Path("old.json").write_text(json.dumps(data))
    assert read_plan(Path("old.json")).score == read_plan(Path("plan/plan.json")).score


# --- words by hand

OUT = ErrorFigures(0.3, 0.4, 0.4, 0.0, 2.0)
OWN = ErrorOf(0.125, 0.2, 0.6, 0.0, 1.25, "a", "any", "any", 1234, OUT, "a")


def test_words_by_hand() -> None:
    assert error_words(OWN) == (
        "fitted to served requests on a (all engines; 1,234 measured rows, cross-validated median error 12.5%, "
        "60% within 20%; with a left out of the fit 30.0% and 40%)"
    )
    assert band_words(1000, [OWN]) == " (800 to 1,200: 80% of measured rows are within a factor 1.25)"
    assert band_words(1000, []) == ""


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (5763, "4,600 to 7,200"),
        (123_456, "99,000 to 150,000"),
        (27, "22 to 34"),
        (0.5, "0.40 to 0.62"),
        (1, "0.80 to 1.2"),
    ],
)
def test_a_band_has_two_digits(rate: float, said: str) -> None:
    assert range_words(rate, [OWN]) == said


def test_a_table_by_hand() -> None:
    borrowed = ErrorOf(
        0.1, 0.2, 0.6, 0.0, 2.0, "a", "named", "any", 7, OUT, "b", "c", note="since 3 rows are too few"
    )
    table, _, note = error_blocks([("x", OWN), ("y", borrowed)])
    assert isinstance(table, Table)
    assert [list(row) for row in table.rows] == [
        ["x", "a", "1,234", "12.5%", "60%", "30.0%, 40%", "1.25"],
        ["y", "a, for c", "7", "-", "-", "30.0%, 40%", "2.00"],
    ]
    assert isinstance(note, Text)
    words = note.text
    assert "of a chip left out of the fit (b, the widest)" in words
    assert words.endswith("a: all rows, since 3 rows are too few")
    *_, note = error_blocks([("x", OWN)])
    assert isinstance(note, Text)
    assert "left out" not in note.text
