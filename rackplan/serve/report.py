"""The page to download: that of a plan, of one cluster priced, or of several compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rackplan import library
from rackplan.results import page_of
from rackplan.serve.asked import read_asked
from rackplan.serve.pricing import deployed, explored, limits_s
from topology.errors import InfeasibleError

if TYPE_CHECKING:
    from placement.plan import Plan


def report_page(asked_for: object, plan: Plan | None) -> tuple[str, str]:
    """Return the name and the text of the page of a plan, else of what the page asks.

    Raises
    ------
    InputError
        If something asked cannot be used.
    InfeasibleError
        If nothing fits.
    """
    if plan is not None:
        where = plan.deployment
        return f"{where.model.name}-{where.cluster.name}-report.html", page_of(plan)
    asked = read_asked(asked_for)
    model, sides, _ = deployed(asked)
    if len(sides) == 1:
        side = explored(asked).sides[0]
        if side.reason or side.sweep is None:
            raise InfeasibleError(side.reason)
        return f"{model.name}-{side.deployment.cluster.name}-sweep.html", page_of(side.sweep)
    tpot_s, _ = limits_s(asked)
    speed: Any = None if asked.tpot_ms is None else "none" if tpot_s is None else 1 / tpot_s
    found = library.compare(
        [side.cluster for side in sides],
        model,
        tok_s_user=speed,
        context=asked.context,
        prices={name: price for side in sides for name, price in side.prices.prices.items()},
        **asked.served,
    )
    return f"{model.name}-compared.html", page_of(found)
