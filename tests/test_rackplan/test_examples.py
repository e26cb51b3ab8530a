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
        "a request waits 40 ms at worst, 30 on average",
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
        "65,536                    4,605.3 MB        143.9 MB         18.0 MB",
        "over weights from              1,737           1,737       3,018,303 tokens",
        "llama-3.1-70b  plain        274 kB/token    179.9 GB      179.9 GB  22.5 GB    1.00x",
        "deepseek-v3    reversible                     4.9 GB        6.6 GB   4.9 GB    1.33x",
        "serve 263 T tokens",
        "131 times Chinchilla's 20 tokens",
        "0.106 USD per million tokens, 2.757 M tokens/s per MW",
    ):
        assert said in text
