"""``rackplan size``: what it prints, its JSON, and what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import cost.joined_units
import cost.supply
from rackplan import options
from topology import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Any]

SMALL = ("size", "--model", "mixtral-8x7b", "--cluster", "hgx-h100")


@pytest.fixture(autouse=True)
def few_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small clusters are enough here."""
    monkeypatch.setattr(cost.joined_units, "MOST_JOINED_GPUS", 16)
    monkeypatch.setattr(cost.supply, "MOST_FLEET_GPUS", 0)


def test_the_data_add_up(run: Run) -> None:
    data = run(*SMALL, "--tok-s", "1M", "--utilization", "0.5", "--spares", "2", "--json").data
    assert data["asked"]["peak_tok_s"] == 2e6
    assert (data["asked"]["tpot_s"], data["asked"]["tpot_default"]) == (0.05, True)
    assert data["tok_s"] >= 2e6 > data["next"]["tok_s"]
    assert data["domains"] == data["units"] + 2 == data["racks"]
    assert data["gpus"] == 8 * data["domains"]
    assert data["tok_s_per_gpu"] == pytest.approx(data["tok_s"] / (8 * data["units"]))
    assert data["tok_s_per_user"] >= 20
    assert data["usd_per_year"] == pytest.approx(8760 * data["usd_per_hour"])
    assert data["usd_per_million_tokens"] == pytest.approx(data["usd_per_hour"] / 3600)
    assert data["usd_per_million_tokens_full"] < data["usd_per_million_tokens"] / 2 * 1.2
    assert data["price_basis"] == "rental"
    assert data["missing"] == []
    assert data["next"]["enough_at_tpot_s"] is None  # 50 ms are no limit here: the largest batch is faster
    assert data["next"]["domains"] == data["domains"] - 1
    assert data["pools"][0]["role"] == "decode"
    assert data["layout"] == data["pools"][0]["layout"]


def test_it_says_what_one_sweep_says_of_the_same_hardware(run: Run) -> None:
    speed = ("--tok-s-user", "25", "--json")
    sweep = run("sweep", *SMALL[1:4], "hgx-h100@16", *speed).data
    [there] = sweep["iso"]
    tok_s = there["tok_s_per_gpu"] * 16
    data = run(*SMALL, "--tok-s", tok_s, "--tpot-ms", "40", "--json").data
    assert data["tok_s_per_gpu"] == pytest.approx(there["tok_s_per_gpu"], rel=1e-6)
    assert data["gpus"] == 16


def test_the_summary_says_what_was_taken_and_what_fewer_miss(run: Run) -> None:
    out = run(*SMALL, "--tok-s", "1M", "--spares", "1").out
    for words in (
        "output tok/s on average",
        "at most 50 ms per output token (default; --tpot-ms",
        "1 is spare",
        "USD per million output tokens at the traffic asked for",
        "basis rental",
        "a year of 8,760 hours",
        "the next smaller",
        "enough at",
        "as the catalog or the file of the unit has them",
    ):
        assert words in " ".join(out.split()), words


def test_pools_of_both_phases(run: Run) -> None:
    data = run(*SMALL, "--tok-s", "100k", "--isl", "2000", "--osl", "300", "--json").data
    assert {pool["role"] for pool in data["pools"]} == {"prefill", "decode"}
    assert data["requests_per_s"] == pytest.approx(data["tok_s"] / 300)
    assert data["ttft_s"] <= data["asked"]["ttft_s"] == 2.0
    out = run(*SMALL, "--tok-s", "100k", "--isl", "2000", "--osl", "300", "--ttft-ms", "none").out
    assert "none on the time to the first token" in " ".join(out.split())


@pytest.mark.wide
def test_a_mix_of_lengths(run: Run, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("isl,osl,share\n2000,300,1\n")
    (tmp_path / "mix.csv").write_text("isl,osl,share\n2000,300,0.5\n100,900,0.495\n")
    pair = run(*SMALL, "--tok-s", "100k", "--isl", "2000", "--osl", "300", "--json").data
    one = run(*SMALL, "--tok-s", "100k", "--lengths", "one.csv", "--json").data
    assert one == pair
    mix = run(*SMALL, "--tok-s", "100k", "--lengths", "mix.csv", "--json").data
    assert mix["gpus"] < pair["gpus"]  # a token of theirs takes less prefill
    assert mix["asked"]["prompts"][0][0] == 2000
    out = " ".join(run(*SMALL, "--tok-s", "100k", "--lengths", "mix.csv").out.split())
    assert "2 kinds, prompts of" in out
    assert "were divided by it" in out
    refused = run(*SMALL, "--tok-s", "1M", "--lengths", "mix.csv", "--isl", "5", "--osl", "5")
    assert refused.code == 2
    assert "--lengths has the prompts and answers of all requests" in refused.error_line
    missing = run(*SMALL, "--tok-s", "1M", "--lengths", "no.csv")
    assert missing.code == 2


def test_what_has_no_figure_is_left_out_and_said(run: Run) -> None:
    lecture = ("size", "--model", "mixtral-8x7b", "--cluster", "lecture-8", "--tok-s", "10k")
    data = run(*lecture, "--json").data
    assert data["usd_per_hour"] is data["power_w"] is data["usd_per_million_tokens"] is None
    assert any("--price lecture=" in text for text in data["missing"])
    assert data["racks"] == data["domains"]
    out = " ".join(run(*lecture).out.split())
    assert "no price of lecture" in out
    priced = run(*lecture, "--price", "lecture=2", "--power", "lecture=1kW", "--json").data
    assert priced["usd_per_hour"] == 2 * priced["gpus"]
    assert priced["power_w"] == 1000 * priced["gpus"]


def test_a_default_that_nothing_keeps_gives_way_and_a_limit_asked_for_does_not(run: Run) -> None:
    slow = ("size", "--model", "llama-3.1-405b", "--cluster", "hgx-h100", "--tok-s", "1k")
    slow += ("--set", "h100-sxm.hbm_bytes_per_s=0.1x")
    out = " ".join(run(*slow).out.split())
    assert "no limit was kept where nobody asked for one: --tpot-ms 50 is out of reach" in out
    refused = run(*slow, "--tpot-ms", "50")
    assert refused.code == 3
    assert "--tpot-ms 50 is out of reach" in refused.error_line


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("--tok-s", "0"), "--tok-s 0: expected output tokens per second above 0"),
        (("--tok-s", "many"), "like 200e6, 200M or 128k"),
        (("--tok-s", "1e99"), "at most 1e+15"),
        (("--tok-s", "1M", "--utilization", "nan"), "--utilization nan"),
        (("--tok-s", "1M", "--utilization", "60"), "above 0 and at most 1"),
        (("--tok-s", "1M", "--utilization", "5e-324"), "--utilization 4.94066e-324: the peak of 1e+06"),
        (
            ("--tok-s", "1M", "--redundant", "9" * 30),
            "--redundant 999999999999999999999999999999: has more than 18",
        ),
        (("--tok-s", "1M", "--imbalance", "1e308"), "at most 1,000,000"),
        (("--tok-s", "1M", "--spares", "-1"), "--spares -1"),
        (("--tok-s", "1M", "--tpot-ms", "soon"), "expected milliseconds, or none"),
        (("--tok-s", "1M", "--tpot-ms", "-1"), "above 0"),
        (("--tok-s", "1M", "--isl", "5"), "give both"),
        (("--tok-s", "1M", "--isl", "5", "--osl", "5", "--context", "5"), "leave --context out"),
        (("--tok-s", "1M", "--ttft-ms", "5"), "only with --isl and --osl"),
        (("--tok-s", "1M", "--imbalance", "0.5"), "1 or more"),
    ],
    ids=lambda value: " ".join(value[1:] if isinstance(value, tuple) else ()),
)
def test_what_is_refused(run: Run, asked: tuple[str, ...], words: str) -> None:
    refused = run(*SMALL, *asked)
    assert refused.code == 2
    assert words in refused.error_line


def test_tokens_per_second_as_people_write_them() -> None:
    read = [
        options.tokens_per_s(text) for text in ("200e6", "200M", "128k", "1.5B", "1,000", "2 M tok/s", "7")
    ]
    assert read == [200e6, 200e6, 128e3, 1.5e9, 1000, 2e6, 7]
    for text in ("", "k", "-1", "nan", "inf", "1e400", "1kk", "200Mi", "1,5M", "\uff12M"):
        with pytest.raises(InputError, match="expected output tokens"):
            options.tokens_per_s(text)


def test_a_cluster_file_is_the_unit(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(
        "name: two\ndomains:\n  - {part: hgx-h100, count: 2}\nfabric: {kind: rail, nic: 400 Gb/s}\n"
        "broken: [{gpu: d1.n0.g1}]\n"
    )
    unit = ("size", "--model", "mixtral-8x7b", "--cluster", "two.yaml", "--tok-s", "1M")
    data = run(*unit, "--json").data
    assert data["proof"]["gap"] <= 0.01
    assert data["gpus"] == 15 * data["units"]
    assert data["domains"] == 2 * data["units"]
    assert "1 broken GPU of each two repeats with it" in " ".join(run(*unit).out.split())


@pytest.mark.wide
def test_a_default_time_to_the_first_token_gives_way_as_in_fleets(run: Run) -> None:
    asked = ("--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--isl", "30000", "--osl", "10")
    asked += ("--set", "h100-sxm.flop_per_s=0.05x", "--tpot-ms", "none")
    out = " ".join(run("size", *asked, "--tok-s", "10").out.split())
    words = "no limit was kept where nobody asked for one: --ttft-ms 2000"
    assert words in out
    assert words in " ".join(run("fleet", *asked, "--time-limit", "1").out.split())
    assert run("size", *asked, "--tok-s", "10", "--ttft-ms", "2000").code == 3


def test_looser_levels_are_sizes_at_that_limit_and_megawatts_are_of_what_was_asked(run: Run) -> None:
    asked = ("size", "--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--tok-s", "3M", "--json")
    data = run(*asked, "--tpot-ms", "20").data
    for level in data["looser"][:2]:
        there = run(*asked, "--tpot-ms", level["tpot_s"] * 1e3).data
        assert (there["gpus"], there["domains"]) == (level["gpus"], level["domains"])
    megawatts = data["power_w"] / 1e6
    assert data["tok_s_per_mw"] == pytest.approx(data["asked"]["tok_s"] / megawatts)
    assert data["tok_s_per_mw_full"] == pytest.approx(data["tok_s"] / megawatts)


def test_the_best_that_is_printed_can_be_asked_for(run: Run) -> None:
    asked = (
        "size",
        "--model",
        "mixtral-8x7b",
        "--cluster",
        "hgx-h100",
        "--tok-s",
        "1k",
        "--isl",
        "1000",
        "--osl",
        "100",
    )
    refused = run(*asked, "--ttft-ms", "0.1")
    assert refused.code == 3
    least = refused.error_line.split("take ")[1].split(" ms")[0]
    assert run(*asked, "--ttft-ms", least).code == 0


def test_domains_without_a_fabric_serve_side_by_side(run: Run, tmp_path: Path) -> None:
    links = "structure: switch, links_per_switch: [5, 5, 4, 4], link: 25 GB/s"
    domain = f"{{gpu: h200-sxm, gpus: 8, gpus_per_node: 8, {links}}}"
    (tmp_path / "alone.yaml").write_text(f"name: alone\ndomains: [{domain}]\n")
    asked = ("size", "--model", "mixtral-8x7b", "--cluster", "alone.yaml", "--tok-s", "1M")
    data = run(*asked, "--json").data
    assert data["domains"] > 1
    assert data["not_joined"] == "alone: has no `fabric` that joins it to others like it."
