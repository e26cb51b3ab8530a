"""``--routing`` of ``plan``, ``score`` and ``replan``: experts placed by what tokens choose together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]

LAYERS, TOKENS = 2, 600
CLUSTER = """
name: two hosts
domains:
  - {gpu: h100-sxm, gpus: 2, gpus_per_node: 2, structure: switch, links_per_switch: [5, 5, 4, 4],
     link: 25 GB/s, count: 2}
fabric: {kind: rail, nic: 400 Gb/s}
"""


@pytest.fixture
def plan(run: Run, few_layers: Callable[[str, int], Path], tmp_path: Path) -> Run:
    """Run ``plan`` on two hosts of two GPUs, with a trace of experts that go in pairs 0 and 4, 1 and 5, ..."""
    (tmp_path / "two.yaml").write_text(CLUSTER)
    rng = np.random.default_rng(0)
    first = rng.integers(0, 8, (TOKENS, LAYERS))
    other = np.where(rng.random((TOKENS, LAYERS)) < 0.8, (first + 4) % 8, (first + 1) % 8)
    np.save(tmp_path / "pairs.npy", np.stack([first, other], axis=2).astype(np.int16))
    config = few_layers("mixtral-8x7b", LAYERS)
    fixed = (
        "--model",
        config,
        "--cluster",
        "two.yaml",
        "--phase",
        "prefill",
        "--context",
        "1024",
        "--batch",
        "1",
    )

    def call(*args: object) -> Any:
        return run(
            "plan", *fixed, "--ep", "4", "--tp", "1", "--stages", "1", "--time-limit", "0", *args, "-o", "out"
        )

    return call


@pytest.mark.wide
def test_a_plan_says_where_its_tokens_go_and_score_finds_the_same(
    run: Run, plan: Run, tmp_path: Path
) -> None:
    made = plan("--routing", "pairs.npy", "--json")
    assert made.code == 0
    written = json.loads((tmp_path / "out/plan.json").read_text())
    by_traffic, traffic = written["by_traffic"], written["score"]["traffic"]
    rows = {row["placement"]: row for row in by_traffic["rows"]}
    assert rows[by_traffic["chosen"]]["step_s"] <= rows["balance"]["step_s"]
    assert by_traffic["traces"] == traffic["routing"] == ["pairs.npy"]
    assert "pairs.npy" in written["inputs"]["sha256"]
    scored = run("score", "out/plan.json", "--routing", "pairs.npy", "--json").data
    traced = {row["layer"]: row for row in scored["token_traffic"] if row["routing"] == "as traced"}
    blind = run("score", "out/plan.json", "--details")
    assert "this score takes experts as chosen independently" in " ".join(blind.out.split())
    assert (tmp_path / "out/report.html").read_text().count("balance only") > 0
    # counted from both files alone
    trace = np.load(tmp_path / "pairs.npy")
    for layer, per_gpu in written["experts"]["layers"].items():
        domain = {expert: gpu // 2 for gpu, held in enumerate(per_gpu) for expert in held}
        needs = [len({domain[expert] for expert in token}) for token in trace[:, int(layer)].tolist()]
        assert traced[int(layer)]["domains_per_token"] == pytest.approx(np.mean(needs))
