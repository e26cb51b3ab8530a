"""Several scenarios, one placement: the search, its bound, and how it fares on a scenario it has not seen."""

from placement.scenarios.place import place_over_scenarios
from placement.scenarios.problem import ScenarioProblem, scenario_problem
from placement.scenarios.report import ScenarioReport, scenario_report

__all__ = [
    "ScenarioProblem",
    "ScenarioReport",
    "place_over_scenarios",
    "scenario_problem",
    "scenario_report",
]
