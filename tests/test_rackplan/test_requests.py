"""Options that cannot apply are refused with the reason; what is odd about others is noted."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

SWEEP = ("sweep", "--model", "Qwen3-8B", "--cluster", "hgx-h100")
LACKS = ("--set b200.hbm_bytes_per_s=2x", "--set b200.hbm_bytes_per_s=2x")
SPARSE = [
    (
        f"--sparse-attention={rule}",
        f"--sparse-attention {rule}: expected sqrt or a whole number of tokens",
    )
    for rule in ("0", "half", "-5", "1.5", "sqrt2")
]
REFUSED = {
    "": [
        ("frobnicate", "frobnicate"),
        ("score", "PLAN"),
        ("replay no.json --loads no.npy --weights fp8", "the plan already sets it"),
    ],
    "plan --model olmoe-1b-7b --cluster hgx-h100": [
        ("--frobnicate", "--frobnicate"),
        ("--batch many", "--batch"),
        ("--objective worst", "--objective worst: there is only one synthetic load"),
        ("--split lp --redundant 0", "--split lp: each expert has one copy"),
        ("--goal cheap", "--goal cheap: expected throughput, latency, gpus, usd or power"),
        ("--tpot-ms fast", "--tpot-ms fast: expected a number above 0, or none"),
        ("--tolerance 100", "--tolerance 100: expected percent, 0 or more and below 100"),
        ("--goal latency --batch 4", "--goal latency and --batch 4:"),
        ("--price gb200=3", "no GPU here is named 'gb200'; "),
        ("--power h100=nan", "expected a number above 0"),
        ("--price-basis spot", "--price-basis 'spot': expected owner, neocloud, rental or list"),
        ("--isl 5 --context 5", "--context 5: --isl plans whole requests"),
        ("--osl 5 --phase prefill", "--phase prefill: --osl plans whole requests"),
        ("--isl 5 --batch 5", "--batch 5: --isl plans whole requests"),
        ("--isl 5 --goal usd", "--goal usd: --isl plans whole requests"),
        ("--isl 5 --redundant auto", "--redundant auto: --isl plans whole requests"),
    ],
    "plan --model Qwen3-8B --cluster hgx-h100": [
        ("--accept-length 1.5", "--accept-length 1.5: without --draft-tokens a step yields one token"),
        ("--phase prefill --tpot-ms 30", "--tpot-ms 30: prefill yields only the first token"),
        *(
            (words, f"{words}: qwen3-8b is dense and has no routed experts")
            for words in (
                "--ep 4",
                "--redundant auto",
                "--loads uniform",
                "--spread node",
                "--routing no.npy",
                "--split lp",
            )
        ),
        *SPARSE,
    ],
    "sweep --model mixtral-8x7b --cluster hgx-h100": [
        ("--isl 100 --context 5", "--context 5: --isl asks for whole requests"),
        ("--osl 100 --phase prefill", "--phase prefill: --osl asks for whole requests"),
        ("--context 5 --ttft-ms 5", "--ttft-ms 5: --context asks for one phase only"),
        ("--phase decode --prefill-cluster h200", "--prefill-cluster h200: --phase asks for one"),
        ("--phase prefill --tok-s-user 50", "--tok-s-user 50: prefill yields only the first token"),
        ("--isl 0 --osl 10", "--isl 0"),
        ("--isl 100 --osl 10 --ttft-ms -5", "--ttft-ms -5"),
        ("--tok-s-user fast", "--tok-s-user fast"),
        ("--prefix-hit 0.5 --phase decode", "applies only to prefill"),
        ("--draft-tokens 5", "give --accept-length"),
        *SPARSE,
    ],
    "compare --model mixtral-8x7b": [
        ("hgx-h100 --gpus 12", "hgx-h100@8 or hgx-h100@16"),
        ("hgx-h100 --tok-s-user fast", "--tok-s-user fast"),
        ("hgx-h100 gb200 H100", "clusters hgx-h100@72: duplicate"),
        ("hgx-h100@16 hgx-h200@8 --gpus 16", "hgx-h200@8 has 8 GPUs"),
        ("hgx-h100 --mw 1 --usd-h 100", "--usd-h 100: --mw already sets"),
        ("hgx-h100 --mw 1 --gpus 8", "--mw 1: --gpus already sets"),
        ("hgx-h100 --mw 0", "--mw 0"),
        ("rubin-576 --mw 1", "no all-in power"),
        ("hgx-h100 no-such", "no-such"),
        *((f"hgx-h100 {words}", reason) for words, reason in SPARSE),
    ],
    "size --model mixtral-8x7b --cluster hgx-h100": [
        ("--tok-s many", "like 200e6, 200M or 128k"),
        ("--tok-s 1M --utilization 60", "above 0 and at most 1"),
        ("--tok-s 1M --gpus 8", "not --tok-s and --gpus;"),
        ("", "one of --req-s, --tok-s, --users, --gpus, --mw, --usd-h"),
        ("--mw nan", "--mw nan: expected a number above 0"),
        ("--usd-h=-1", "expected a number above 0"),
        ("--req-s 5 --context 4096", "decode only has no requests"),
        ("--gpus 8 --usd-m 1 --tpot-ms 20", "--usd-m already determines the speed"),
        ("--gpus 8 --cluster hgx-h1000", "hgx-h1000"),
    ],
    "traffic hgx-h100": [
        ("--output -", "-: results are written to files"),
        ("--pattern rings", "did you mean ring"),
        ("--pattern none.npy", "does not exist"),
        ("--gpus 5", "like 0-7"),
        ("--bytes-per-gpu nan", "greater than zero"),
        ("--bytes-per-gpu '10 Gb/s'", "byte is needed"),
        LACKS,
    ],
    "draw": [
        ("hgx-h101 -o t.svg", "hgx-h100"),
        ("hgx-h100 -o t.gif", "t.gif"),
        ("hgx-h100 -o absent/t.svg", "absent/t.svg"),
        ("hgx-h100 -o t.svg --level d1", "no such domain"),
        ("hgx-h100 -o t.svg --traffic storm", "storm"),
        ("hgx-h100 -o t.svg --traffic ring --plan p.json", "two pictures"),
    ],
    "draw hgx-h200 -o x.svg": [LACKS],
    "catalog hgx-h200": [LACKS],
}


@pytest.mark.parametrize(
    ("words", "reason"),
    [(f"{command} {words}", reason) for command, rows in REFUSED.items() for words, reason in rows],
    ids=lambda value: str(value)[-40:],
)
def test_what_cannot_be_is_refused_with_the_reason_and_leaves_nothing(
    run: Run, words: str, reason: str, tmp_path: Path
) -> None:
    result = run(*shlex.split(words))
    assert (result.code, result.out) == (2, "")
    assert reason in result.error_line
    assert list(tmp_path.iterdir()) == []


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
