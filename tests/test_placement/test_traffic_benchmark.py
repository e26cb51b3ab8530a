"""`benchmarks/domains_per_token.py`: its figures are those of the placements it prints; bad input ends with 2."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from helpers import script


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return script("benchmarks/domains_per_token.py")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers; topics in the second only."""
    rng = np.random.default_rng(0)
    score = rng.gumbel(size=(600, 2, 16))
    score[:, 1] += 4 * (np.arange(16) % 4 == rng.integers(0, 4, (600, 1)))
    path = tmp_path_factory.mktemp("trace") / "trace.npy"
    np.save(path, np.argsort(-score, axis=2)[:, :, :3].astype(np.int16))
    return path


@pytest.mark.wide
def test_figures_are_those_of_the_placements_printed(
    benchmark: ModuleType, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(trace), "--layer", "1", "--domains", "4", "--groups", "4", "--json"]
    assert benchmark.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    held_out = np.load(trace)[300:, 1]
    for name in ("ours", "contiguous", "whole_groups"):
        domain = np.empty(16, dtype=int)
        for number, experts in enumerate(found[name]["experts"]):
            domain[experts] = number
        reached = np.mean([len(set(row)) for row in domain[held_out].tolist()])
        assert found[name]["domains_per_token"] == pytest.approx(reached)
        assert found[name]["seconds"] >= 0
    assert found["ours"]["load"] <= 1.05
    assert found["bound_in_training"] <= found["ours"]["domains_per_token_in_training"]
    assert found["ours"]["domains_per_token"] < found["contiguous"]["domains_per_token"] - 0.5
    assert "mt_kahypar" in found
