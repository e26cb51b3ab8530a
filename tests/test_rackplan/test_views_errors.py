"""Every output says how far off this chip's figures are, and says the same as docs/calibration.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cost.calibration.errors import ErrorFigures, ErrorOf, error_table
from helpers import error_of
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
    assert found["band"] == band
    assert found["left_out_chip"] in SERVED


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
