"""``rackplan fleet``: pools, files, what other commands make of its plans, and what is refused."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

CLUSTER = """
name: two-prices
domains:
  - {part: hgx-h100, count: 2}
  - {part: hgx-h200, count: 1}
fabric: {kind: rail, nic: 400 Gb/s, oversubscription: 1}
broken: [{gpu: d0.n0.g3}]
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "two-prices.yaml"
    path.write_text(CLUSTER)
    return path


@pytest.fixture
def mixtral(few_layers: Callable[[str, int], Path]) -> Path:
    return few_layers("mixtral-8x7b", 4)


def test_pools_totals_idle_and_plans(run: Run, cluster: Path, mixtral: Path) -> None:
    done = run(
        "fleet", "--model", mixtral, "--cluster", cluster, "--isl", 1000, "--osl", 100, "-o", "out", "--json"
    )
    assert done.code == 0, done.err
    data = done.data
    written = json.loads((cluster.parent / "out/fleet.json").read_text())
    assert {key: written[key] for key in data} == data
    text = (cluster.parent / "out/report.html").read_text(encoding="utf-8")
    usd = data["totals"]["usd_per_million_tokens"]
    assert f": ${usd:#.3g} per million output tokens, " in text
    for number in range(len(data["pools"])):
        assert f"P{number}: " in text  # on the drawing
    used = [gpu for pool in data["pools"] for replica in pool["replicas"] for gpu in replica["gpus"]]
    idle = [gpu for one in data["idle"] for gpu in one["gpus"]]
    assert len(set(used)) == len(used)
    assert not set(used) & set(idle)
    assert "d0.n0.g3" not in used + idle
    assert data["broken"] == ["d0.n0.g3"]
    totals = data["totals"]
    assert (totals["gpus"], totals["gpus_broken"]) == (23, 1)
    assert totals["input_tok_s"] == pytest.approx(1000 * totals["requests_per_s"])
    assert totals["tok_s"] == pytest.approx(100 * totals["requests_per_s"])
    assert (totals["gpus_used"], totals["gpus_idle"]) == (len(used), len(idle))
    assert totals["requests_per_s"] * 100 == pytest.approx(totals["tok_s"])
    assert totals["usd_per_hour"] == pytest.approx(15 * 1.3 + 8 * 1.6)
    assert totals["usd_per_million_tokens"] == pytest.approx(
        totals["usd_per_hour"] / 3600 / totals["tok_s"] * 1e6
    )
    assert data["proof"]["status"] in {"OPTIMAL", "FEASIBLE"}
    assert data["proof"]["gap"] <= 0.01
    for role in ("decode", "prefill"):
        assert sum(p["share"] for p in data["pools"] if p["role"] in {role, "both"}) == pytest.approx(1)
    for pool in data["pools"]:
        assert pool["placed"]["tok_s"] == pool["tok_s_per_replica"]
    pool = data["pools"][0]
    plan = f"out/{pool['plan']}"
    assert run("score", plan).code == 0
    assert run("draw", cluster, "--plan", plan, "-o", "x.svg").code == 0
    assert run("draw", "hgx-h100@16", "--plan", plan, "-o", "y.svg").code == 2
    stages = json.loads((cluster.parent / plan).read_text())["stages"]
    assert [gpu for stage in stages for gpu in stage["gpus"]] == pool["replicas"][0]["gpus"]


def test_the_first_lines_are_the_answer(run: Run, mixtral: Path) -> None:
    asked = ("fleet", "--model", mixtral, "--cluster", "hgx-h100@16", "--isl", 1000, "--osl", 100)
    lines = run(*asked).out.splitlines()
    labels = ["One pool", "Throughput", "Speed", "Total", "Cost", "Power", "Limits", "Goal"]
    assert set(labels) <= {line.split("  ")[0] for line in lines[:14]}  # a title of two lines
    assert "none idle" in " ".join(lines[:13])
    assert not any("step ms" in line for line in lines)
    assert "step ms" in run(*asked, "--details").out


@pytest.mark.wide
def test_two_models_by_share(
    run: Run, cluster: Path, mixtral: Path, few_layers: Callable[[str, int], Path]
) -> None:
    other = few_layers("qwen3-235b-a22b", 4)
    data = run(
        "fleet",
        "--model",
        f"{mixtral}:0.7",
        "--model",
        f"{other}:0.3",
        "--cluster",
        cluster,
        "--time-limit",
        1,
        "--json",
    ).data
    assert [one["share"] for one in data["inputs"]["models"]] == [0.7, 0.3]
    assert sum(pool["share"] for pool in data["pools"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--phase", "prefill"], 2, "prefill alone yields none"),
        (["--goal", "speed"], 2, "--goal speed"),
        (["--tok-s", "1e15"], 3, "out of reach"),
        (["--tpot-ms", "0.001"], 3, "the fastest takes"),
        (["--spares", "3"], 2, "--spares 3"),
    ],
)
def test_refusals(
    run: Run, cluster: Path, mixtral: Path, arguments: list[object], code: int, said: str
) -> None:
    done = run("fleet", "--model", mixtral, "--cluster", cluster, *arguments)
    assert done.code == code
    assert said in done.error_line


def test_ctrl_c_while_replicas_are_planned(
    run: Run, cluster: Path, mixtral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from placement.fleet.plans import Placing

    plan = Placing.plan

    def pressed(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return plan(*args)

    monkeypatch.setattr(Placing, "plan", pressed)
    asked = ("fleet", "--model", mixtral, "--cluster", cluster, "--isl", 512, "--osl", 128, "-o", "out")
    done = run(*asked)
    assert done.code == 130
    assert "interrupted" in done.err
    made = json.loads((cluster.parent / "out/fleet.json").read_text())
    first, *rest = made["pools"]
    assert first["plan"] is not None
    assert rest
    assert {pool["no_plan"] for pool in rest} == {"not planned: interrupted"}
    assert made["proof"]["interrupted"]
