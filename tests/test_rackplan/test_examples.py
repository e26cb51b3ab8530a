"""The examples run and print the lecture's figures."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_blackboard_prints_the_lecture(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "blackboard.py"), run_name="__main__")
    text = capsys.readouterr().out
    for said in (
        "300 x 256/32 = 2,400 tokens",
        "2,400 tokens in 20 ms = 120,000 tokens/s",
        "2,000 x 64 = 128,000",
        "256 experts in a domain of 72: 4 each on 64 GPUs",
        "50% of the traffic leaves its domain",
        "4.0 times as long with both networks side by side, 4.5 times one after the other",
        "300 x 671/37 = 5,496",
        "weights alone: 300 times",
    ):
        assert said in text
