"""What a plan is chosen for, on the command line: goals, limits, tolerance, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

PLAN = ("plan", "--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--context", "512", "--time-limit", "0")


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        (("--goal", "cheap"), 2, "--goal cheap: expected throughput, latency, gpus, usd or power"),
        (("--tpot-ms", "fast"), 2, "--tpot-ms fast: expected a number above 0, or none"),
        (("--tolerance", "100"), 2, "--tolerance 100: expected percent, 0 or more and below 100"),
        (("--goal", "latency", "--batch", "4"), 2, "--goal latency and --batch 4:"),
        (("--tpot-ms", "0.5"), 3, "--tpot-ms 0.5 is out of reach on hgx-h100: the fastest layout takes"),
        (("--ttft-ms", "0.5"), 3, "--ttft-ms 0.5 is out of reach on hgx-h100: a prompt of 512 tokens alone"),
    ],
)
def test_what_cannot_be_is_refused(
    run: Run, tmp_path: Path, asked: tuple[str, ...], code: int, words: str
) -> None:
    result = run(*PLAN, *asked, "-o", "plan")
    assert result.code == code
    assert words in " ".join(result.err.split())
    assert not (tmp_path / "plan").exists()


@pytest.mark.wide
def test_the_best_is_taken_without_a_tolerance(run: Run) -> None:
    figures = [
        run(*PLAN, "--tolerance", given, "-o", f"plan{given}", "--json").data["tok_s_per_gpu"]
        for given in ("0", "2%", "25")
    ]
    assert figures[0] >= figures[1] >= 0.98 * figures[0]
    assert figures[2] >= 0.75 * figures[0]
