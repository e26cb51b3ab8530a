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
        "4 stages,  4 micro-batches: 1.75 times, 43% idle",
        "is a batch 15 times smaller: 240 sequences instead of 3,600",
        "caches take 1.8 times as long to read as weights",
        "1,667 bytes of cache a token, about 2 kB",
        "batch     3,600:   1.9",
        "disk      from 48.2 minutes",
        "serve 263 T tokens",
        "131 times Chinchilla's 20 tokens",
        "0.106 USD per million tokens, 2.757 M tokens/s per MW",
    ):
        assert said in text
