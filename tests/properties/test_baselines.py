"""Placements scored, by hand; linear and EPLB's two policies: its published example, on a placement's slots."""

from __future__ import annotations

import numpy as np
import pytest

from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads
from cost.inputs.layout import Layout, StageSpec
from placement.experts.baselines import Baselines, eplb_hierarchical
from placement.experts.problem import Problem
from placement.scoring import ExpertPlacement, placement_balancedness
from test_placement.builders import deployed

# The example of EPLB's README: 12 experts, 16 copies, 4 groups, 2 nodes, 8 GPUs.
WEIGHT = [
    [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
    [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
]
PUBLISHED = [
    [5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
    [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1],
]


def test_hierarchical_gives_the_published_map() -> None:
    answer = eplb_hierarchical(Problem(np.array(WEIGHT, dtype=float), np.full(8, 2)), groups=4, nodes=2)
    assert answer.assignment is not None
    assert answer.assignment.slot_expert.tolist() == PUBLISHED


def test_a_policy_that_does_not_apply_says_why() -> None:
    unequal = Baselines(Problem(np.ones((1, 4)), np.array([2, 2, 1])), eplb_groups=2, nodes=1)
    for name in ("eplb_global", "eplb_hierarchical"):
        assert unequal[name].assignment is None
        assert "unequal" in unequal[name].reason
    equal = Problem(np.ones((1, 12)), np.full(6, 2))
    assert "4 expert groups do not divide over 3 nodes" in eplb_hierarchical(equal, groups=4, nodes=3).reason
    assert Baselines(equal, eplb_groups=None, nodes=1)["eplb_hierarchical"].reason == ""


SETTING = deployed("mixtral-8x7b", "hgx-h100", 4, batch=2)
TWO_STAGES = Layout(((StageSpec((0, 1, 2, 3), range(1)), StageSpec((4, 5, 6, 7), range(1, 4))),), 1)
TOKENS = np.ones((1, 4, 8))
TOKENS[0, 2, 0] = 9.0  # layer 2: expert 0 is nine times as hot


def test_balancedness_is_the_mean_over_scenarios_whatever_their_size() -> None:
    """Layer 2: GPU loads 10, 2, 2, 2, mean 4 over max 10."""

    def in_order(layers: int) -> Assignment:
        rows = np.tile(np.arange(8, dtype=np.int32), (layers, 1))
        return Assignment(rows, np.repeat(np.arange(4, dtype=np.int32), 2), 8, 4)

    for tokens, layer_2 in ((TOKENS, 0.4), (np.concatenate([1000 * np.ones((1, 4, 8)), TOKENS]), 0.7)):
        loads = ExpertLoads(tokens, ("a", "b")[: len(tokens)], synthetic=False)
        placed = ExpertPlacement(SETTING, TWO_STAGES, [in_order(1), in_order(3)], loads)
        found = placement_balancedness(placed)
        assert found == pytest.approx({0: 1.0, 1: 1.0, 2: layer_2, 3: 1.0})
