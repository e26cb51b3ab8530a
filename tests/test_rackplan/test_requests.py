"""Options that cannot apply are refused with the reason; what is odd about others is noted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]

DENSE = ("--model", "Qwen3-8B", "--cluster", "hgx-h100")
PLAN = ("plan", *DENSE, "-o", "out")
SWEEP = ("sweep", *DENSE)
LENGTHS = ("--isl", "100", "--osl", "10")
MOE = ("plan", "--model", "olmoe-1b-7b", "--cluster", "hgx-h100", "-o", "out")
REFUSED = [
    ((*MOE, "--objective", "worst"), "--objective worst: there is only one synthetic load"),
    ((*MOE, "--split", "lp", "--redundant", "0"), "--split lp: each expert has one copy"),
    ((*SWEEP, *LENGTHS, "--context", "5"), "--context 5: --isl asks for whole requests"),
    ((*SWEEP, *LENGTHS, "--phase", "prefill"), "--phase prefill: --isl asks for whole requests"),
    ((*SWEEP, "--context", "5", "--ttft-ms", "5"), "--ttft-ms 5: --context asks for one phase only"),
    (
        (*SWEEP, "--phase", "decode", "--prefill-cluster", "h200"),
        "--prefill-cluster h200: --phase asks for one",
    ),
    (
        (*PLAN, "--accept-length", "1.5"),
        "--accept-length 1.5: without --draft-tokens a step yields one token",
    ),
    *(
        ((*PLAN, *words), f"{' '.join(words)}: qwen3-8b is dense and has no routed experts")
        for words in (
            ("--ep", "4"),
            ("--redundant", "auto"),
            ("--loads", "uniform"),
            ("--spread", "node"),
            ("--routing", "no.npy"),
            ("--split", "lp"),
        )
    ),
    ((*PLAN, "--phase", "prefill", "--tpot-ms", "30"), "--tpot-ms 30: prefill yields only the first token"),
    (
        (*SWEEP, "--phase", "prefill", "--tok-s-user", "50"),
        "--tok-s-user 50: prefill yields only the first token",
    ),
    (
        ("replay", "no.json", "--loads", "no.npy", "--weights", "fp8"),
        "--weights fp8: the plan already sets it",
    ),
    (("traffic", "hgx-h100", "--output", "-"), "-: results are written to files"),
]


@pytest.mark.parametrize(("words", "reason"), REFUSED, ids=lambda value: str(value)[-40:])
def test_an_option_that_cannot_apply_is_refused_with_the_reason(
    run: Run, words: tuple[str, ...], reason: str
) -> None:
    result = run(*words)
    assert (result.code, result.out) == (2, "")
    assert reason in result.error_line


def test_options_that_apply_are_not(run: Run) -> None:
    assert run(*SWEEP, "--tok-s-user", "50").code == 0


def test_words_are_read_in_any_case(run: Run) -> None:
    assert run("traffic", "hgx-h100", "--pattern", "Ring").code == 0
    assert run(*SWEEP, "--phase", "Prefill", "--engine", "SGLang").code == 0
    assert "choose decode or prefill" in run(*SWEEP, "--phase", "Prefil").error_line


@pytest.mark.parametrize(
    ("lengths", "tokens"),
    [(("--context", "50000"), "50,000"), (("--isl", "40000", "--osl", "1000"), "41,000")],
)
def test_sequences_beyond_the_model_are_noted(run: Run, lengths: tuple[str, ...], tokens: str) -> None:
    result = run(*SWEEP, *lengths, "--json")
    assert result.code == 0
    note = f"sequences of {tokens} tokens exceed the 40,960 that qwen3-8b supports"
    assert note in result.err
    assert any(said["text"].startswith(note) for said in result.data["notes"])
