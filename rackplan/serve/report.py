"""The page to download: that of a plan, of one cluster priced, or of several compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement.options import PlanOptions
from rackplan import library
from rackplan.render.html import page
from rackplan.results import svg
from rackplan.serve.asked import read_asked
from rackplan.serve.command import explore_command
from rackplan.serve.pricing import Side, deployed, explored, limits_s
from rackplan.views.compare import compare_blocks
from rackplan.views.plan import plan_blocks
from rackplan.views.sweep import sweep_blocks
from rackplan.work import compared
from topology.base.errors import InfeasibleError

if TYPE_CHECKING:
    from cost.inputs.deployment import Deployment
    from placement.plan import Plan


def plan_report(plan: Plan, command: str) -> tuple[str, str]:
    """Return the name and the text of the page of a plan."""
    where = plan.deployment
    made = page(plan_blocks(plan, drawing=svg(plan) or "", command=command))
    return f"{where.model.name}-{where.cluster.name}-plan.html", made


def explored_report(asked_for: object) -> tuple[str, str]:
    """Return the name and the text of the page of what the page asks.

    Raises
    ------
    InputError
        If something asked cannot be used.
    InfeasibleError
        If nothing fits.
    """
    asked = read_asked(asked_for)
    model, sides, _ = deployed(asked)
    drawings = {side.cluster.name: svg(side.cluster) or "" for side in sides}
    more: dict[str, Any] = {"command": explore_command(asked, sides), "drawings": drawings}
    tpot_s, _ = limits_s(asked)
    speeds = [] if tpot_s is None else [1 / tpot_s]
    if len(sides) == 1:
        side = explored(asked).sides[0]
        if side.reason:
            raise InfeasibleError(side.reason)
        return f"{model.name}-{side.deployment.cluster.name}-sweep.html", _swept(side, speeds, more)
    return f"{model.name}-compared.html", _compared(sides, speeds, more, usual=asked.tpot_ms is None)


def _swept(side: Side, speeds: list[float], more: dict[str, Any]) -> str:
    if side.pools is not None:
        return page(sweep_blocks([side.pools.decode, side.pools.prefill], side.pools, speeds, **more))
    assert side.sweep is not None  # noqa: S101 - there is no reason why not
    return page(sweep_blocks([side.sweep], None, speeds, **more))


def _compared(sides: list[Deployment], speeds: list[float], more: dict[str, Any], *, usual: bool) -> str:
    """Return the page of a comparison: at the usual speed, at the one that was asked for, or as much as fits."""
    loads = library.make_loads(sides[0].model, None)
    options = PlanOptions(time_limit_s=0.0, tpot_s=None if usual or speeds else "none")
    found = compared(sides, loads, options, [] if usual else speeds)
    return page(compare_blocks(found, **more))
