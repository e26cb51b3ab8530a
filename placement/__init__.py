"""Where things go: layouts, layers to stages, copies of experts to GPUs; bounds, checks and the plan file.

The way of the data: :func:`placement.fitting.fitted_layouts` finds the layouts that fit,
:func:`placement.layout_choice.choose_layout` takes one, the placement of its experts is a
:class:`placement.problem.Problem` that :func:`placement.solve.solve` answers (counts, packing, pair exchanges,
CP-SAT), :mod:`placement.verify` checks the answer without any solver, and :func:`placement.planner.make_plan` joins
all in a :class:`placement.plan.Plan`.
"""

from topology.old_names import register as _register_old_names

_register_old_names(
    modules={
        "placement.replan": "placement.migrate",
        "placement.replan.few_moves": "placement.migrate.migration",
        "placement.replan.task": "placement.migrate.task",
        "placement.scenarios": "placement.solve",
    },
    names={
        "placement.options.ALIKE": "placement.options.TOLERANCE",
        "placement.problem.expert_problem": "placement.problem.make_problem",
        "placement.replan.few_moves.FewMoves": "placement.migrate.migration.Migration",
        "placement.replan.few_moves.few_moves": "placement.migrate.migration.migrate",
        "placement.replan.task.ReplanTask": "placement.migrate.task.MigrationTask",
        "placement.replan.task.replan_task": "placement.migrate.task.migration_task",
        "placement.scenarios.place_over_scenarios": "placement.solve.solve",
        "placement.scenarios.scenario_problem": "placement.problem.make_problem",
        "placement.scenarios.scenario_report": "placement.cross_validation.scenario_report",
    },
    adapters={
        "placement.replan.few_moves.few_moves": "placement.old_calls.few_moves",
        "placement.replan.task.replan_task": "placement.old_calls.replan_task",
        "placement.scenarios.place_over_scenarios": "placement.old_calls.place_over_scenarios",
    },
)
