"""What a plan is chosen for, on the command line: goals, limits, tolerance, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Any]

PLAN = (
    "plan",
    "--model",
    "mixtral-8x7b",
    "--cluster",
    "hgx-h100",
    "--context",
    "512",
    "--time-limit",
    "0",
)


def test_the_default_is_said_and_what_asks_for_another(run: Run, tmp_path: Path) -> None:
    result = run(*PLAN, "-o", "plan")
    assert (result.code, result.err) == (0, "")
    out = " ".join(result.out.split())
    said = (
        "Goal most tok/s/GPU at 50 ms a token or less, 20 tok/s/user (default; --tpot-ms; --tpot-ms none for the "
        "largest batch that fits)"
    )
    assert said in out
    written = json.loads((tmp_path / "plan/plan.json").read_text())
    assert written["service_level"].startswith("most tok/s/GPU at 50 ms a token or less")
    options = written["request"]
    assert (options["goal"], options["tpot_s"], options["tolerance"]) == ("throughput", None, 0.02)
    again = " ".join(run("score", "plan/plan.json").out.split())
    assert said in again
    free = run(*PLAN, "--tpot-ms", "none", "-o", "free", "--json").data
    assert free["score"]["batch_per_gpu"] == free["score"]["max_batch_per_gpu"]
    assert run("score", "free/plan.json").code == 0


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        ("latency", "Goal least time per token"),
        ("GPUS", "Goal fewest GPUs at 50 ms a token or less"),
        ("usd", "Goal fewest dollars per token at 50 ms"),
    ],
)
def test_goals_are_said(run: Run, goal: str, words: str) -> None:
    result = run(*PLAN, "--goal", goal, "-o", "plan")
    assert (result.code, result.err) == (0, "")
    assert words in " ".join(result.out.split())
    for command in ("score", "explain"):
        assert run(command, "plan/plan.json").code == 0


def test_a_first_token_in_time_is_said(run: Run) -> None:
    result = run(*PLAN, "--ttft-ms", "100", "-o", "plan")
    assert result.code == 0
    assert "first token within 100 ms (--ttft-ms):" in " ".join(result.out.split())


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        (("--goal", "cheap"), 2, "--goal cheap: expected throughput, latency, gpus, usd or power"),
        (("--tpot-ms", "fast"), 2, "--tpot-ms fast: expected milliseconds, or none"),
        (("--tpot-ms", "nan"), 2, "--tpot-ms nan: expected a number above 0"),
        (("--tpot-ms", "0"), 2, "--tpot-ms 0: expected a number above 0"),
        (("--ttft-ms", "-1"), 2, "--ttft-ms -1: expected a number above 0"),
        (("--tolerance", "100"), 2, "--tolerance 100: expected percent, 0 or more and below 100"),
        (("--tolerance", "-1"), 2, "--tolerance -1: expected percent"),
        (("--tolerance", "nan"), 2, "--tolerance nan: expected percent"),
        (("--goal", "latency", "--batch", "4"), 2, "--goal latency and --batch 4:"),
        (("--phase", "prefill", "--tpot-ms", "50"), 2, "--tpot-ms 50: prefill"),
        (("--tpot-ms", "0.5"), 3, "--tpot-ms 0.5 is out of reach on hgx-h100: the fastest layout takes"),
        (
            ("--ttft-ms", "0.5"),
            3,
            "--ttft-ms 0.5 is out of reach on hgx-h100: a prompt of 512 tokens alone",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    run: Run, tmp_path: Path, asked: tuple[str, ...], code: int, words: str
) -> None:
    result = run(*PLAN, *asked, "-o", "plan")
    assert result.code == code
    assert words in " ".join(result.err.split())
    assert not (tmp_path / "plan").exists()


def test_a_goal_in_dollars_asks_for_the_price_that_is_missing(run: Run) -> None:
    asked = (
        "plan",
        "--model",
        "mixtral-8x7b",
        "--cluster",
        "lecture-8",
        "--time-limit",
        "0",
        "--goal",
        "usd",
    )
    result = run(*asked, "-o", "plan")
    assert result.code == 2
    assert "--goal usd: lecture" in result.err
    assert "--price" in result.err
    name = result.err.split("--goal usd: ")[1].split(":")[0]
    assert run(*asked, "--price", f"{name}=2", "-o", "plan").code == 0


@pytest.mark.wide
def test_the_best_is_taken_without_a_tolerance(run: Run) -> None:
    figures = [
        run(*PLAN, "--tolerance", given, "-o", f"plan{given}", "--json").data["score"]["tok_s_per_gpu"]
        for given in ("0", "2%", "25")
    ]
    assert figures[0] >= figures[1] >= 0.98 * figures[0]
    assert figures[2] >= 0.75 * figures[0]
