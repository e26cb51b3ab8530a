"""``--set``: a figure of the user's on every command that takes a cluster, and in the plan that it makes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rackplan.options import given_clusters
from topology import resolve_cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Result

DOUBLE = ("--set", "h100.hbm_bytes_per_s=2x")
SAID = "h100-sxm hbm_bytes_per_s 6.7 TB/s (2x of 3.35 TB/s)"


@pytest.fixture
def plan(
    prepared: Callable[..., None], few_layers: Callable[[str, int], Path], tmp_path: Path
) -> Callable[..., Any]:
    """``plan(OPTION...)``: the plan file of a small model on one host."""

    def call(*args: str) -> Any:
        model = few_layers("mixtral-8x7b", 2)
        prepared(
            "plan",
            "--model",
            model,
            "--cluster",
            "hgx-h100",
            "--time-limit",
            0,
            "--batch",
            64,
            "-o",
            "p",
            *args,
        )
        return json.loads((tmp_path / "p" / "plan.json").read_text())

    return call


def test_a_plan_is_made_with_the_figure_and_keeps_it(
    run: Callable[..., Result], plan: Callable[..., Any]
) -> None:
    usual, fast = plan()["score"], plan(*DOUBLE)["score"]
    assert fast["step_s"] < usual["step_s"]
    scored = run("score", "p/plan.json")
    assert SAID in " ".join(scored.out.split())
    assert run("score", "p/plan.json", "--json").data["step_s"] == pytest.approx(fast["step_s"])
    explained = run("explain", "p/plan.json", "--json").data
    figure = next(one for one in explained["figures"] if one["name"] == "hbm_bytes_per_s")
    assert (figure["kind"], figure["source"]) == ("user", "set by the user: 2x of 3.35 TB/s")
    assert any(SAID in text for text in explained["assumptions"])


def test_a_plan_is_scored_and_explained_with_another_figure(
    run: Callable[..., Result], plan: Callable[..., Any]
) -> None:
    usual = plan()["score"]
    fast = run("score", "p/plan.json", *DOUBLE, "--json").data
    assert fast["step_s"] < usual["step_s"]
    assert SAID in " ".join(run("explain", "p/plan.json", *DOUBLE).out.split())
    levers = run("what-if", "p/plan.json", *DOUBLE, "--json").data
    assert levers["plan"]["step_s"] == pytest.approx(fast["step_s"])
    small = run("score", "p/plan.json", "--set", "gpu.hbm_bytes=0.01x")
    assert small.code == 3
    assert "HBM capacity binds: batch 64 needs" in small.error_line


@pytest.mark.wide
def test_sweep_compare_traffic_catalog_and_draw_take_it(
    run: Callable[..., Result], few_layers: Callable[[str, int], Path]
) -> None:
    model = few_layers("mixtral-8x7b", 2)
    link = ("--set", "nvlink4.link_bytes_per_s=50 GB/s")
    swept = run("sweep", "--model", model, "--cluster", "hgx-h100@16", *DOUBLE)
    assert SAID in " ".join(swept.out.split())
    compared = run("compare", "hgx-h100", "hgx-h20", "--model", model, *DOUBLE, "--json").data
    assert list(compared["set"]) == ["hgx-h100"]
    half = run("traffic", "hgx-h100", *link, "--json").data
    assert half["set"][0]["value"] == 50e9
    assert half["transfer_s"] == pytest.approx(run("traffic", "hgx-h100", "--json").data["transfer_s"] / 2)
    known = run("catalog", "hgx-h100", *DOUBLE, "--json").data
    assert known["gpu"]["figures"]["hbm_bytes_per_s"]["value"] == 6.7e12
    sized = run("size", "--model", model, "--cluster", "hgx-h100", "--tok-s", 1e6, *DOUBLE, "--json").data
    assert sized["set"][0]["value"] == 6.7e12
    fleet = run("fleet", "--model", model, "--cluster", "hgx-h100", *DOUBLE, "--json").data
    assert fleet["set"][0]["value"] == 6.7e12
    assert run("draw", "hgx-h100", *link, "-o", "x.svg").code == 0


def test_of_two_clusters_of_one_command_each_takes_what_it_has() -> None:
    decode, prefill = given_clusters(["hgx-h200", "hgx-h100"], [DOUBLE[1]])
    assert decode.spec == resolve_cluster("hgx-h200").spec
    assert prefill.spec.domains[0].gpu.hbm_bytes_per_s == 6.7e12


@pytest.mark.parametrize("command", ["traffic hgx-h200", "catalog hgx-h200", "draw hgx-h200 -o x.svg"])
def test_a_part_that_the_cluster_lacks_is_refused(run: Callable[..., Result], command: str) -> None:
    refused = run(*command.split(), *DOUBLE)
    assert refused.code == 2
    assert "--set h100.hbm_bytes_per_s=2x" in refused.error_line


def test_lists_of_the_catalog_are_of_no_cluster(run: Callable[..., Result]) -> None:
    assert "name a cluster" in run("catalog", "gpus", *DOUBLE).error_line


@pytest.mark.parametrize("command", ["score", "explain", "what-if"])
def test_what_is_set_is_marked_in_the_data(run: Callable[..., Result], prepared: Any, command: str) -> None:
    plan = (
        "plan",
        "--model",
        "olmoe-1b-7b",
        "--cluster",
        "hgx-h100",
        "--ep",
        "8",
        "--time-limit",
        "0",
        "-o",
        "s",
    )
    prepared(*plan)
    found = run(command, "s/plan.json", *DOUBLE, "--json").data["set"]
    assert [(one["part"], one["figure"], one["kind"]) for one in found] == [
        ("h100-sxm", "hbm_bytes_per_s", "user")
    ]
    assert "set" not in run(command, "s/plan.json", "--json").data


def test_a_plan_that_keeps_what_was_set_says_so(run: Callable[..., Result]) -> None:
    plan = ("plan", "--model", "olmoe-1b-7b", "--cluster", "hgx-h100", "--ep", "8", "--time-limit", "0")
    made = run(*plan, *DOUBLE, "-o", "t", "--json").data
    moved = run("replan", "t/plan.json", "--time-limit", "0", "-o", "u", "--json").data
    assert made["set"] == moved["set"] == run("score", "u/plan.json", "--json").data["set"]
    compared = run("diff", "t/plan.json", "u/plan.json", "--json").data
    assert [one["set"] for one in compared["plans"]] == [made["set"]] * 2
