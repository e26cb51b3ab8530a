"""A replay of recorded windows as a result: what it was made of, its baseline, and the policy to take."""

from __future__ import annotations

from dataclasses import dataclass

from cost.experts.loads import ExpertLoads
from placement.online.recommend import Recommendation, recommend
from placement.online.simulate import ReplayResult, Run, run_names
from placement.plan import Plan
from topology.base.shown import Shown
from topology.base.units import plural

BASELINES = ("vllm", "sglang", "static")
"""Whose tokens gained are counted against: the first of these that takes part, else the first policy."""


@dataclass(frozen=True, eq=False, repr=False)
class Replayed(Shown):
    """A replay, and what it was made of.

    Attributes
    ----------
    plan:
        The plan that runs first: ``given``, or made by ``made_for``.
    loads:
        The windows.
    scenarios:
        Stored loads that policies of ours know beforehand; None: none.
    made_for:
        What the static placement was planned for, in words.
    given:
        The path of the plan; empty where it was made for this replay.
    notes:
        Which policies do not apply, and what of the plan those that do pass over.
    """

    result: ReplayResult
    plan: Plan
    loads: ExpertLoads
    scenarios: ExpertLoads | None
    made_for: str
    given: str = ""
    notes: tuple[str, ...] = ()

    def brief(self) -> str:
        """Return the deployment, the windows, and what each policy keeps in balance."""
        names = zip(run_names(self.result.runs), self.result.runs, strict=True)
        means = (f"{name} {run.mean:.3f}" for name, run in names)
        windows = plural(self.result.windows, "window")
        return f"{self.plan.deployment.brief()}, {windows}: balancedness {', '.join(means)}"

    @property
    def baseline(self) -> Run:
        """The policy that tokens gained are counted against."""
        baselines = (self.result.run(name) for name in BASELINES)
        return next((run for run in baselines if run is not None), self.result.runs[0])

    @property
    def steps(self) -> int:
        """Steps of a window."""
        return self.baseline.setting.steps_per_window

    @property
    def recommendation(self) -> Recommendation:
        """The policy to take."""
        return recommend(self.result.runs)

    def start_words(self, run: Run) -> str:
        """Return what a policy began with."""
        return "linear" if run.entry.linear else self.given or "static plan"
