"""What if: each lever of a plan pulled alone, and what the plan would then reach at the same service level.

A lever is scored three ways. With the batch kept, the plan's own placement runs its own batch on what changed. With
the layout kept, the placement stays and the batch is the largest within the service level. With the layout free, the
best layout of the sweep (:mod:`cost.layouts`) runs at its own largest batch, its experts placed the fast way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from placement.analysis.bench import Bench
from placement.analysis.lever import Lever, Reached, ServiceLevel
from placement.plan import Plan
from topology.base.shown import Shown

WORTH = 5e-4
"""Gain below which a lever does nothing that anybody would see."""


@dataclass(frozen=True, eq=False, repr=False)
class Levers(Shown):
    """The levers of a plan, the largest gain first.

    ``unchanged`` is the plan under no change.
    """

    plan: Plan
    level: ServiceLevel
    unchanged: Lever
    rows: tuple[Lever, ...]

    def brief(self) -> str:
        """Return of what the levers are, and what the largest bring."""
        gains = (f"{row.name} {row.change}".rstrip() + f" {row.gain:+.1%}" for row in self.largest)
        return f"of {self.plan.deployment.brief()}: {', '.join(gains) or 'none gains anything'}"

    @property
    def largest(self) -> list[Lever]:
        """The best change of each lever besides layouts that gains anything with the layout kept, largest first."""
        found: dict[str, Lever] = {}
        for row in self.rows:
            if row.kind != "layout" and isinstance(row.layout_kept, Reached) and row.gain >= WORTH:
                found.setdefault(row.name, row)
        return list(found.values())


def find_levers(plan: Plan, *, free: bool = True, on_stage: Callable[[str], None] | None = None) -> Levers:
    """Return what each lever would bring.

    Parameters
    ----------
    free:
        Also look at other layouts: those levers, and each lever with the layout free.
    on_stage:
        Called with what is looked at.
    """
    bench = Bench(plan, free=free)
    say = on_stage or (lambda _: None)
    rows: list[Lever] = []
    groups = (("machine", bench.hardware), ("workload", bench.workload), ("layout", bench.layouts))
    for number, (name, made) in enumerate(groups, 1):
        say(f"changing the {name}, {number} of {len(groups)}")
        for row in made():
            rows.append(row)
            say(f"changing the {name}, {number} of {len(groups)}: {row.name} {row.change}")
    rows.sort(key=lambda row: (-row.gain, row.name, row.change))
    return Levers(plan, bench.level, bench.unchanged(), tuple(rows))
