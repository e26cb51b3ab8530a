"""Placement: layouts, layers to stages, expert copies to GPUs; bounds, checks and the plan file.

The way of the data: :func:`placement.layouts.fitting.fitted_layouts` finds the layouts that fit,
:func:`placement.layouts.choose.choose_layout` takes one, the placement of its experts is a
:class:`placement.experts.problem.Problem` that :func:`placement.experts.solve.solve` answers (counts, packing, pair
exchanges, CP-SAT), :mod:`placement.verify` checks the answer without any solver, and
:func:`placement.planner.make_plan` joins all in a :class:`placement.plan.Plan`.
"""
