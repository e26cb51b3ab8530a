"""Options that cannot apply are refused with the reason; what is odd about others is noted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rackplan.applies import RULES, in_lower_case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Any]

DENSE = ("--model", "Qwen3-8B", "--cluster", "hgx-h100")
PLAN = ("plan", *DENSE, "-o", "out")
SWEEP = ("sweep", *DENSE)
LENGTHS = ("--isl", "100", "--osl", "10")
MOE = ("plan", "--model", "olmoe-1b-7b", "--cluster", "hgx-h100", "-o", "out")
REPLAY = ("replay", "--model", "olmoe-1b-7b", "--cluster", "hgx-h100", "--loads", "no.npy")
REFUSED = [
    ((*MOE, "--windows", "4", "--loads", "zipf:1"), "--windows 4: it is of recordings given with --loads"),
    (
        (*MOE, "--objective", "worst"),
        "--objective worst: there is one synthetic load, which is the mean and the worst",
    ),
    (
        (*MOE, "--split", "lp", "--redundant", "0"),
        "--split lp: each expert has one copy, for --redundant is 0",
    ),
    ((*SWEEP, "--isl", "5"), "--isl 5: prompts and answers have a length each; give both, or neither."),
    ((*SWEEP, "--osl", "5"), "--osl 5: prompts and answers have a length each; give both"),
    ((*SWEEP, *LENGTHS, "--context", "5"), "--context 5: --isl and --osl are of both phases"),
    ((*SWEEP, *LENGTHS, "--phase", "prefill"), "--phase prefill: --isl and --osl are of both phases"),
    ((*SWEEP, "--ttft-ms", "5"), "--ttft-ms 5: nothing is prefilled without lengths of requests"),
    ((*SWEEP, "--prefill-cluster", "h200"), "--prefill-cluster h200: nothing is prefilled without lengths"),
    (
        (*SWEEP, *LENGTHS, "--kv-offload", "ddr5"),
        "--kv-offload ddr5: nothing lies elsewhere without --prefix-hit",
    ),
    ((*SWEEP, *LENGTHS, "--host-link", "9 GB/s"), "--host-link 9 GB/s: nothing lies elsewhere without"),
    (
        (*PLAN, "--accept-length", "1.5"),
        "--accept-length 1.5: a step yields one token without --draft-tokens; give --draft-tokens too.",
    ),
    (
        ("fleet", "--model", "olmoe-1b-7b", "--cluster", "hgx-h100", "--loads", "no-such.npy"),
        "--loads no-such.npy: a fleet is chosen with experts balanced; loads place those of the plans that -o DIR",
    ),
    ((*PLAN, "--ep", "4"), "--ep 4: qwen3-8b is dense, it has no routed experts; leave --ep out."),
    ((*PLAN, "--redundant", "auto"), "--redundant auto: qwen3-8b is dense, it has no routed experts"),
    ((*PLAN, "--loads", "uniform"), "--loads uniform: qwen3-8b is dense, it has no routed experts"),
    ((*PLAN, "--windows", "3"), "--windows 3: qwen3-8b is dense, it has no routed experts"),
    ((*PLAN, "--spread", "node"), "--spread node: qwen3-8b is dense, it has no routed experts"),
    ((*PLAN, "--routing", "no.npy"), "--routing no.npy: qwen3-8b is dense, it has no routed experts"),
    ((*MOE, "--balance-slack", "9"), "--balance-slack 9: nobody knows which experts tokens choose together"),
    ((*MOE, "--front"), "--front: nobody knows which experts tokens choose together"),
    ((*PLAN, "--split", "lp"), "--split lp: qwen3-8b is dense, it has no routed experts"),
    ((*PLAN, "--objective", "worst"), "--objective worst: qwen3-8b is dense, it has no routed experts"),
    (
        (*MOE, "--scenario-weights", "equal"),
        "--scenario-weights equal: there is one synthetic load, which is the mean and the worst",
    ),
    ((*SWEEP, "--imbalance", "1.5"), "--imbalance 1.5: qwen3-8b is dense, it has no routed experts"),
    ((*SWEEP, "--redundant", "8"), "--redundant 8: qwen3-8b is dense, it has no routed experts"),
    ((*PLAN, "--phase", "prefill", "--tpot-ms", "30"), "--tpot-ms 30: prefill makes the first token alone"),
    ((*SWEEP, "--phase", "prefill", "--tok-s-user", "50"), "--tok-s-user 50: prefill makes the first token"),
    (
        ("plan", "--model", "olmoe-1b-7b", "--cluster", "hgx-h100", "-o", "out", "--windows", "4"),
        "--windows 4: it is of recordings given with --loads; leave --windows out.",
    ),
    (
        ("traffic", "hgx-h100", "--pattern", "ring", "--seed", "4"),
        "--seed 4: only random, zipf and lognormal patterns have a seed",
    ),
    *(
        (("replay", "no.json", "--loads", "no.npy", *words), f"{' '.join(words)}: the plan is given")
        for words in (
            ("--phase", "prefill"),
            ("--context", "9"),
            ("--batch", "8"),
            ("--redundant", "8"),
            ("--ep", "8"),
            ("--weights", "fp8"),
        )
    ),
    (
        (*REPLAY, "--policy", "static", "--interval", "2w"),
        "--interval 2w: static, which never re-plans, is alone; leave --interval out.",
    ),
    (
        (*REPLAY, "--policy", "vllm", "--scenarios", "no.npy"),
        "--scenarios no.npy: only static and rackplan know stored loads",
    ),
    (
        ("traffic", "hgx-h100", "--output", "-"),
        "-: results are files, and no file of that name is meant; name one",
    ),
    (("traffic", "hgx-h100", "--rail-local-forward"), "--rail-local-forward: hgx-h100 has no rails between"),
    (("traffic", "hgx-h100", "--no-rail-local-forward"), "--no-rail-local-forward: hgx-h100 has no rails"),
]


@pytest.mark.parametrize(("words", "reason"), REFUSED, ids=lambda value: str(value)[-40:])
def test_an_option_that_cannot_apply_is_refused_with_the_reason(
    run: Run, words: tuple[str, ...], reason: str
) -> None:
    result = run(*words)
    assert (result.code, result.out) == (2, "")
    assert reason in result.error_line


def test_each_rule_has_a_test_and_an_option() -> None:
    named = {name for rule in RULES for name in rule.options.split()}
    typed = {
        word.removeprefix("--no-").lstrip("-").replace("-", "_") for words, _ in REFUSED for word in words
    }
    assert named <= typed


@pytest.mark.parametrize(
    "words",
    [
        ("traffic", "hgx-h100", "--pattern", "random", "--seed", "4"),
        ("traffic", "hgx-h100@16", "--no-rail-local-forward"),
        (*SWEEP, "--phase", "prefill"),
        (*SWEEP, "--tok-s-user", "50"),
    ],
)
def test_options_that_apply_are_not(run: Run, words: tuple[str, ...]) -> None:
    assert run(*words).code == 0


def test_words_are_read_in_any_case(run: Run) -> None:
    assert run("traffic", "hgx-h100", "--pattern", "Ring").code == 0
    assert run(*SWEEP, "--phase", "Prefill", "--engine", "SGLang").code == 0
    assert "choose decode or prefill" in run(*SWEEP, "--phase", "Prefil").error_line
    assert in_lower_case({"pattern": "Mine.npy", "model": "X", "split": "LP", "gpus": 8}) == {
        "pattern": "Mine.npy",
        "model": "X",
        "split": "lp",
        "gpus": 8,
    }


@pytest.mark.parametrize(
    ("lengths", "tokens"),
    [(("--context", "50000"), "50,000"), (("--isl", "40000", "--osl", "1000"), "41,000")],
)
def test_sequences_beyond_the_model_are_noted(run: Run, lengths: tuple[str, ...], tokens: str) -> None:
    result = run(*SWEEP, *lengths, "--json")
    assert result.code == 0
    note = f"sequences of {tokens} tokens are longer than the 40,960 that qwen3-8b was made for"
    assert note in result.err
    assert [one.startswith(note) for one in result.data["notes"]] == [True]


def test_the_longest_requests_of_a_mix_are_noted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mix.csv").write_text("isl,osl,share\n1000,100,0.9\n40000,1000,0.1\n")
    result = run("size", *DENSE, "--tok-s", "1000", "--lengths", "mix.csv", "--ttft-ms", "none")
    assert result.code == 0
    assert "sequences of 41,000 tokens are longer" in result.err


def test_sequences_within_are_not_noted_nor_is_the_command_after(run: Run) -> None:
    run(*SWEEP, "--context", "50000", "--json")
    result = run(*SWEEP, "--context", "40960", "--json")
    assert (result.code, result.err) == (0, "")
    assert "notes" not in result.data


@pytest.mark.wide
def test_a_plan_keeps_the_note(run: Run) -> None:
    words = (
        "--model",
        "olmoe-1b-7b",
        "--cluster",
        "hgx-h100",
        "--context",
        "5000",
        "--time-limit",
        "0",
        "--tp",
        "1",
    )
    made = run("plan", *words, "-o", "out")
    assert "4,096 that olmoe-1b-7b was made for" in made.err
    assert "longer than the 4,096" in " ".join(made.out.split())
    explained = run("explain", "out/plan.json")
    assert "longer than the 4,096" in " ".join(explained.out.split()).lower()
    for command in ("score", "explain", "what-if"):
        found = run(command, "out/plan.json", "--json")
        assert "4,096 that olmoe-1b-7b was made for" in found.err
        assert any("longer than the 4,096" in one for one in found.data["notes"])


def test_of_a_model_in_a_folder_the_config_alone_is_an_input(
    run: Run, few_layers: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "My-Model"
    folder.mkdir()
    (folder / "config.json").write_bytes(few_layers("olmoe-1b-7b", 1).read_bytes())
    (folder / "model.safetensors").write_bytes(b"weights")
    words = ("--model", "My-Model", "--cluster", "h100", "--time-limit", "0", "-o", "out")
    assert run("plan", *words).code == 0
    inputs = json.loads((tmp_path / "out/plan.json").read_text())["inputs"]
    assert list(inputs["sha256"]) == ["My-Model/config.json"]
    assert (inputs["model"]["name"], inputs["cluster"]["name"]) == ("My-Model", "hgx-h100")
