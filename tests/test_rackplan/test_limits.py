"""A limit that is asked for is kept by the answer, or refused by its name; every command takes all of them alike."""

from __future__ import annotations

import pytest

import rackplan
from helpers import Run

ON = ("--model", "mixtral-8x7b", "--cluster", "hgx-h100")
COMMANDS = {
    "sweep": ("sweep", *ON),
    "plan": ("plan", *ON, "--time-limit", "0", "-o", "plan"),
    "size": ("size", *ON, "--tok-s", "10k"),
    "compare": ("compare", "hgx-h100", *ON[:2]),
    "simulate": ("simulate", *ON, "--req-s", "1"),
}
DECODE, PREFILL = ("--phase", "decode"), ("--phase", "prefill")
WHOLE = ("--isl", "8k")
pytestmark = pytest.mark.usefixtures("few_joined", "no_speed_of_levels", "few_requests")


@pytest.mark.parametrize(
    ("command", "phase", "limit"),
    [
        *((name, DECODE, "--tpot-ms 0.05") for name in ("sweep", "plan")),
        *((name, WHOLE, "--tpot-ms 0.05") for name in ("sweep", "plan", "size", "simulate")),
        *((name, WHOLE, "--ttft-ms 20") for name in ("sweep", "plan", "size", "compare")),
        *((name, WHOLE, "--ttft-p99-ms 20") for name in ("sweep", "size", "compare", "simulate")),
        *((name, PREFILL, "--ttft-ms 20") for name in ("sweep", "plan", "compare")),
        *((name, DECODE, "--tok-s-user 20000") for name in ("sweep", "plan", "size", "compare")),
    ],
)
def test_what_nothing_keeps_is_refused_with_the_limit(
    run: Run, command: str, phase: tuple[str, ...], limit: str
) -> None:
    result = run(*COMMANDS[command], *phase, *limit.split())
    assert result.code == 3
    flag, value = limit.split()
    spelt = {"--tok-s-user": ("--tpot-ms 0.05", "20000 tok/s/user")}.get(flag, (f"{flag} {value}",))
    assert any(word in result.err for word in spelt)


def test_a_sweep_keeps_the_limit(run: Run) -> None:
    found = rackplan.sweep("mixtral-8x7b", "hgx-h100", context=4096, tpot_ms=30.5)
    asked = (*COMMANDS["sweep"], "--context", "4096", "--json", "--tpot-ms")
    data = run(*asked, "30.5").data
    assert data["tpot_limit_s"] == found.limit_s == 0.0305
    assert data["step_s"] <= 0.0305
    assert data["tok_s_per_gpu"] == max(found.tok_s_per_gpu[found.step_s <= 0.0305])
    assert run(*asked, "none").data["tok_s_per_gpu"] > data["tok_s_per_gpu"]


def test_under_load_the_answer_is_at_the_rate_that_keeps_the_limit(run: Run) -> None:
    loaded = run(*COMMANDS["sweep"], *WHOLE, "--ttft-p99-ms", "800", "--json").data
    free = run(*COMMANDS["sweep"], *WHOLE, "--json").data
    assert (loaded["ttft_p99_limit_ms"], free["ttft_p99_limit_ms"]) == (800, None)
    assert loaded["requests_per_s"] < free["requests_per_s"]
    assert loaded["tok_s_per_user"] > free["tok_s_per_user"]


def test_placed_experts_keep_the_limit_on_the_first_token(run: Run) -> None:
    asked = (*WHOLE, "--loads", "zipf:1.5", "--tpot-ms", "none", "--ttft-ms", "600", "--json")
    assert run(*COMMANDS["plan"], *asked).data["ttft_s"] <= 0.6
