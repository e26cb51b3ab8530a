"""Old public names: modules import by them, names are found by them, and a warning says where they are now."""

import sys
import warnings
from importlib import import_module

import numpy as np
import pytest

import rackplan
from placement.solve import solve
from topology.old_names import ADAPTERS, MODULES, NAMES

SLOTS = np.full(4, 2)


@pytest.mark.parametrize(
    ("module", "name", "new"),
    [
        ("placement.replan.few_moves", "KNEE", "placement.migrate.migration.KNEE"),
        ("placement.replan.few_moves", "FewMoves", "placement.migrate.migration.Migration"),
        ("placement.replan.task", "ReplanTask", "placement.migrate.task.MigrationTask"),
        ("placement.scenarios", "scenario_problem", "placement.problem.make_problem"),
        ("placement.scenarios", "scenario_report", "placement.cross_validation.scenario_report"),
    ],
)
def test_an_old_name_is_what_is_there_now(module, name, new):
    sys.modules.pop(module, None)
    old = import_module(module)
    where, _, known = new.rpartition(".")
    with pytest.warns(DeprecationWarning, match=rf"^{module}\.{name} is now {new}\.$"):
        assert getattr(old, name) is getattr(import_module(where), known)


def test_every_new_home_is_there():
    assert rackplan  # has registered its names
    for module in MODULES.values():
        assert import_module(module)
    for name in (*NAMES.values(), *ADAPTERS.values()):
        where, _, known = name.rpartition(".")
        assert hasattr(import_module(where), known)
    for name in NAMES:
        where, _, known = name.rpartition(".")
        with pytest.warns(DeprecationWarning, match=name.replace(".", r"\.")) as said:
            assert getattr(import_module(where), known) is not None
        assert len(said) == 1
        assert said[0].filename == __file__


def test_an_old_module_imports_without_a_word_until_a_name_is_asked_for():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import_module("placement.replan.few_moves")


def test_names_of_modules_that_are_still_there():
    with pytest.warns(DeprecationWarning, match=r"^rackplan\.Setting is now rackplan\.Deployment\.$"):
        assert rackplan.Setting is rackplan.Deployment
    with pytest.warns(DeprecationWarning, match=r"expert_problem is now placement\.problem\.make_problem"):
        expert_problem = import_module("placement.problem").expert_problem
    assert expert_problem(np.ones((2, 6)), SLOTS).mean.shape == (2, 6)


def test_functions_take_the_parameters_that_they_had():
    with pytest.warns(DeprecationWarning, match=r"place_over_scenarios is now placement\.solve\.solve"):
        place_over_scenarios = import_module("placement.scenarios").place_over_scenarios
    with pytest.warns(DeprecationWarning, match=r"scenario_problem is now placement\.problem\.make_problem"):
        scenario_problem = import_module("placement.scenarios").scenario_problem
    problem = scenario_problem(np.random.default_rng(0).lognormal(0, 1, (2, 2, 6)), SLOTS)
    found = place_over_scenarios(problem, time_limit_s=0, seed=0, eplb_groups=None, nodes=1)
    np.testing.assert_array_equal(found.assignment.slot_expert, solve(problem).assignment.slot_expert)
    with pytest.warns(DeprecationWarning, match=r"few_moves is now placement\.migrate\.migration\.migrate"):
        few_moves = import_module("placement.replan.few_moves").few_moves
    with pytest.warns(
        DeprecationWarning, match=r"replan_task is now placement\.migrate\.task\.migration_task"
    ):
        replan_task = import_module("placement.replan.task").replan_task
    loads = np.ones((1, 1, 4))
    problem, placed = scenario_problem(loads, [2, 2]), np.array([[0, 1, 2, 3]], dtype=np.int32)
    made = replan_task(problem, loads, placed, "worst", split="source")
    assert (made.problem.objective, made.problem.split) == ("worst", "source")
    assert few_moves([made], time_limit_s=0.0).moves == 0


def test_what_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"placement\.nowhere"):
        import_module("placement.nowhere")
    with pytest.raises(AttributeError, match="Nothing"):
        import_module("placement.scenarios").Nothing  # noqa: B018
