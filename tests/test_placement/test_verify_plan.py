"""Every rule of a legal plan and of a legal assignment, broken one at a time."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cost.experts.assignment import Assignment
from cost.experts.loads import read_loads
from cost.experts.traces.counts import Wanted
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec
from cost.inputs.workload import Workload
from helpers import few_layers
from placement.experts.problem import Problem
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from placement.verify import verify_experts, verify_plan
from topology import resolve_cluster


@cache
def legal() -> Plan:
    model = few_layers("mixtral-8x7b", 4)
    deployment = Deployment(resolve_cluster("hgx-h100@16"), model, Workload(batch=2))
    loads = read_loads(["zipf:1"], Wanted(tuple(model.moe_layers), 4, 8), seed=0)
    return make_plan(deployment, loads, PlanOptions(time_limit_s=0.0, redundant=8))


def experts_of(rows: object, gpus: int = 8) -> Assignment:
    array = np.array(rows, dtype=np.int32)
    slot_gpu = np.repeat(np.arange(gpus, dtype=np.int32), array.shape[1] // gpus)
    return Assignment(array, slot_gpu, 8, gpus)


def one_copy(layers: int) -> Assignment:
    return experts_of(np.tile(np.arange(8), (layers, 1)))


def plan_with(
    replicas: list[list[tuple[range, range]]], *, tp: int = 1, experts: list[Assignment | None] | None = None
) -> Plan:
    """A plan whose stages are ``(gpus, layers)``, one copy of each expert unless given."""
    rows = tuple(tuple(StageSpec(tuple(gpus), layers) for gpus, layers in stages) for stages in replicas)
    placed = experts or [one_copy(len(layers)) for _, layers in replicas[0]]
    return replace(legal(), layout=Layout(rows, tp), experts=tuple(placed))


FIRST, SECOND, ALL = range(8), range(8, 16), range(4)


STRANGERS = range(8, 24)
DOUBLE = experts_of([[0, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6]] * 4)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (plan_with([[(FIRST, range(3))]]), r"replica 0: its stages hold layers \[0, 1, 2\], not 0 to 3"),
        (plan_with([[(FIRST, range(2)), (SECOND, range(3, 4))]]), "its stages hold layers"),
        (plan_with([[(FIRST, ALL)], [(range(7, 15), ALL)]]), r"GPU d0\.n0\.g7 is in two stages"),
        (plan_with([[(STRANGERS, ALL)]]), "GPU number 16 of 16"),
        (plan_with([[(FIRST, ALL)]], tp=3), r"TP 3 does not divide layers 0 to 3"),
        (plan_with([[(range(5, 13), ALL)]], tp=8), "into groups within a domain"),
        (plan_with([[(FIRST, ALL)]], experts=[None]), "no experts are placed"),
        (plan_with([[(FIRST, ALL)]], experts=[one_copy(3)]), r"shape of slot_expert: \(3, 8\)"),
        (plan_with([[(FIRST, ALL)]], experts=[DOUBLE]), "GPU 0 holds expert 0 more than once"),
        (
            plan_with([[(FIRST, ALL)]], experts=[experts_of([[9, *range(1, 8)]] * 4)]),
            r"expert 9 is not in 0\.\.7",
        ),
    ],
)
def test_each_rule_is_checked(plan: Plan, words: str) -> None:
    wrong = verify_plan(plan)
    assert any(re.search(words, line) for line in wrong), wrong


def test_memory_is_checked_on_every_stage() -> None:
    plan = plan_with([[(FIRST, range(1)), (SECOND, range(1, 4))]])
    full = replace(plan, deployment=plan.deployment.with_batch(10**6))
    wrong = verify_plan(full)
    assert "sequences per GPU, and engines run" in wrong[0]
    assert len(wrong) == 3
    assert all(re.search(r"GB per GPU, [\d.]+ GB usable", line) for line in wrong[1:])


def test_memory_is_checked_to_the_byte() -> None:
    """The largest batch of the score is legal, one more is not."""
    most = legal().score.max_batch
    assert verify_plan(replace(legal(), deployment=legal().deployment.with_batch(most))) == []
    assert verify_plan(replace(legal(), deployment=legal().deployment.with_batch(most + 1))) != []


def test_all_violations_are_listed() -> None:
    plan = plan_with([[(FIRST, range(3))], [(FIRST, range(3))]], tp=3, experts=[one_copy(2)])
    text = "\n".join(verify_plan(plan))
    for words in ("replica 0", "replica 1", "two stages", "TP 3", "shape of slot_expert"):
        assert words in text


# --- assignments

PROBLEM = Problem(np.ones((2, 3)), np.array([2, 2]))
ROWS = [[0, 1, 2, 0], [2, 1, 0, 1]]
GPUS = [0, 0, 1, 1]


def assignment(rows: object = ROWS, gpus: object = GPUS, experts: int = 3, count: int = 2) -> Assignment:
    return Assignment(np.array(rows), np.array(gpus), experts, count)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (assignment([[0, 1, 1, 0], ROWS[1]]), "row 0: expert 2 has no copy"),
        (assignment([ROWS[0], [2, 1, 0, 0]]), "row 1: GPU 1 holds expert 0 more than once"),
        (assignment([[0, 1, 2, 3], ROWS[1]]), "row 0, slot 3: expert 3 is not in 0..2"),
        (assignment(gpus=[0, 1, 1, 1]), "GPU 0 has 1 slots, but the problem gives it 2"),
        (assignment(gpus=[1, 1, 0, 0]), "slots are not in the order of their GPUs"),
        (assignment(rows=[ROWS[0]]), "shape of slot_expert: (1, 4), but the problem has (2, 4)"),
        (assignment(rows=[[0.0, 1.0, 2.0, 0.5], ROWS[1]]), "float64, not integers"),
    ],
)
def test_each_violation_is_named(broken: Assignment, words: str) -> None:
    assert any(words in violation for violation in verify_experts(broken, PROBLEM))


def test_copies_in_one_failure_domain_are_named() -> None:
    """GPUs 0 and 1 are one node; expert 0 is on both."""
    spread = Problem(np.ones((1, 3)), np.array([1, 1, 2]), spread=np.array([7, 7, 3]))
    gpus = [0, 1, 2, 2]
    found = verify_experts(assignment([[0, 0, 1, 2]], gpus, count=3), spread)
    assert found == ["row 0: GPUs 0 and 1, of one failure domain, both hold expert 0"]
