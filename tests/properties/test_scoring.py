"""Scoring a placement: rows of the loads by stage, balancedness by hand, loads that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec
from cost.inputs.workload import Workload
from helpers import few_layers
from placement.scoring import placement_balancedness, score_placement
from topology import resolve_cluster
from topology.base.errors import InputError

SETTING = Deployment(resolve_cluster("hgx-h100"), few_layers("mixtral-8x7b", 4), Workload(batch=2))
TWO_STAGES = Layout(((StageSpec((0, 1, 2, 3), range(1)), StageSpec((4, 5, 6, 7), range(1, 4))),), 1)
TOKENS = np.ones((1, 4, 8))
TOKENS[0, 2, 0] = 9.0  # layer 2: expert 0 is nine times as hot


def linear(layers: int) -> Assignment:
    """Two experts a GPU, in order."""
    rows = np.tile(np.arange(8, dtype=np.int32), (layers, 1))
    return Assignment(rows, np.repeat(np.arange(4, dtype=np.int32), 2), 8, 4)


def loads(tokens: np.ndarray) -> ExpertLoads:
    return ExpertLoads(tokens, tuple(f"s{index}" for index in range(len(tokens))), synthetic=False)


def test_balancedness_by_hand() -> None:
    """Layer 2: GPU loads 10, 2, 2, 2, mean 4 over max 10."""
    found = placement_balancedness(SETTING, TWO_STAGES, [linear(1), linear(3)], loads(TOKENS))
    assert found == pytest.approx({0: 1.0, 1: 1.0, 2: 0.4, 3: 1.0})


def test_balancedness_is_the_mean_over_scenarios_whatever_their_size() -> None:
    both = loads(np.concatenate([1000 * np.ones((1, 4, 8)), TOKENS]))
    found = placement_balancedness(SETTING, TWO_STAGES, [linear(1), linear(3)], both)
    assert found == pytest.approx({0: 1.0, 1: 1.0, 2: 0.7, 3: 1.0})


def test_loads_of_another_model_are_refused() -> None:
    with pytest.raises(InputError, match="do not fit"):
        score_placement(SETTING, TWO_STAGES, [linear(1), linear(3)], loads(np.ones((1, 4, 16))))


def test_placements_are_one_for_each_stage() -> None:
    for experts, words in (([linear(1)], "1 placement for"), ([linear(1)] * 3, "3 placements for")):
        with pytest.raises(InputError, match=words):
            score_placement(SETTING, TWO_STAGES, experts, loads(TOKENS))
