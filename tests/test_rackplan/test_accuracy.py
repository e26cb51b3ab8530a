"""Every output says how far off this chip's figures are, and says the same as docs/trust.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cost.calibration.errors import error_table
from helpers import error_of

Run = Callable[..., Any]

SERVED = [chip for chip, of in error_table().chips.items() if of.rows_of == "served"]
DENSE, MOE = ("--model", "llama-3.1-8b"), ("--model", "mixtral-8x7b")
FAST = ("--time-limit", "0", "-o", "plan")


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(("cluster", "chip"), [("tpu-v7@2x2x2", "tpu-v7"), ("vr-nvl72", "rubin")])
def test_an_unmeasured_chip_names_its_stand_in_and_a_band(run: Run, cluster: str, chip: str) -> None:
    out, band = (
        one_line(run("plan", *DENSE, "--cluster", cluster, *FAST, "--details").out),
        error_of(chip).band,
    )
    assert f"{chip} has no measurements, so a related chip stands in: kernel efficiency is fitted to" in out
    sure = f"are within {band:.2f}x of the prediction with their chip left out of the fit"
    words = f"{sure}; no run on {chip} was measured"
    assert words in out
    assert words in one_line(run("compare", cluster, "hgx-h100", *DENSE).out)
    found = json.loads(Path("plan/plan.json").read_text())["score"]["calibration"]
    assert (found["chip"], found["stand_in_for"]) == (error_of(chip).chip, chip)
    assert found["band"] == band
    assert found["left_out_chip"] in SERVED
