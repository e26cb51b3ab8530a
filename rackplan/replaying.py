"""Recorded loads replayed through balancers: what a command and :func:`rackplan.replay` do alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topology.base.errors import InputError, input_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cost.experts.loads import ExpertLoads
    from cost.inputs.deployment import Deployment
    from cost.model import Model
    from placement.budget import Cancel
    from placement.plan import Plan
    from rackplan.views.replay import Replayed

STEPS = 3000
"""Steps of a window: vLLM's from one re-plan to the next."""
_ALL = 1 << 30
"""Windows that a recording may have: none is merged."""


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """What is asked of a replay.

    Attributes
    ----------
    policies:
        ``static``, ``vllm``, ``sglang``, or ``rackplan`` and ``rackplan-linear`` with a
        budget after a colon (``rackplan:5%``, ``rackplan:0``, ``rackplan:none``); none: all that apply.
    seed:
        Of the plan that is made where none is given.
    """

    policies: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        from placement.online.policies import DEFAULT, require_names

        require_names(self.policies or DEFAULT)

    def windows_of(self, model: Model, texts: Sequence[str | NDArray[Any]]) -> ExpertLoads:
        """Read the windows in order.

        Raises
        ------
        InputError
            If they do not fit the model, or there are fewer than two.
        """
        from cost.experts.loads import is_generator
        from cost.experts.traces.open import open_counts
        from cost.experts.traces.windows import MOST_WINDOWS
        from rackplan.options import model_loads

        files = [text for text in texts if isinstance(text, str) and not is_generator(text)]
        stepwise = [text for text in files if open_counts(text).of_steps]
        found = model_loads(model, texts, self.seed, windows=MOST_WINDOWS if stepwise else _ALL)
        if found is not None and stepwise:
            names = ", ".join(Path(text).name for text in stepwise)
            note = f"{names}: single steps were recorded; each window stands for {STEPS:,} steps here"
            found = replace(found, notes=(*found.notes, note))
        if found is None or len(found.tokens) < 2:
            named = [text if isinstance(text, str) else "an array" for text in texts]
            raise InputError(
                "one window with tokens; a replay plans on one and scores on the "
                "next: give a recording of two or more, or several files in order.",
                field="loads",
                value=", ".join(named),
            )
        return found


@dataclass(frozen=True, eq=False)
class Replay:
    """A replay that is ready to run.

    Attributes
    ----------
    given, path:
        The plan that runs first, and where it was read; None and empty: one is made of ``deployment``.
    loads, scenarios:
        The windows, and stored loads that are known beforehand.
    """

    given: Plan | None
    path: str
    deployment: Deployment
    loads: ExpertLoads
    scenarios: ExpertLoads | None
    asked: ReplayOptions

    def run(self, say: Callable[[str], None], cancel: Cancel | None = None) -> Replayed:
        """Replay the windows; ``say`` is told what is done, Ctrl-C and ``cancel`` keep the windows before.

        Raises
        ------
        InputError
            If a policy cannot be used.
        InfeasibleError
            If no plan fits.
        CancelledError
            If ``cancel`` says so before a window was scored.
        """
        from placement.budget import Budget
        from placement.online.policies import DEFAULT, entries, that_apply
        from placement.online.setting import plan_setting
        from placement.online.simulate import replay
        from rackplan.views.replay import Replayed

        budget, asked = Budget(cancel=cancel), self.asked
        count = len(self.loads.tokens)
        taking_part = entries(
            asked.policies or DEFAULT,
            steps_per_window=STEPS,
            windows=count,
            planned=self.given is not None,
        )
        plan, words = self._plan(say, cancel)
        setting = plan_setting(plan, STEPS, self.scenarios)
        notes = list(_passed_over(plan))
        if not asked.policies:
            taking_part, left_out = that_apply(taking_part, setting.groups)
            notes += left_out
        turns = cycle(range(1, len(taking_part) + 1))
        result = replay(
            self.loads.tokens,
            taking_part,
            setting,
            budget=budget,
            on_progress=lambda at, of, name: say(
                f"replaying window {at} of {of}: {name}, policy {next(turns)} of "
                f"{len(taking_part)} (Ctrl-C keeps the windows before)"
            ),
        )
        return Replayed(result, plan, self.loads, self.scenarios, words, self.path, tuple(notes))

    def _plan(self, say: Callable[[str], None], cancel: Cancel | None) -> tuple[Plan, str]:
        """Return the plan that runs first, and what it was made for."""
        from placement.budget import Budget
        from placement.options import PlanOptions
        from placement.planner import make_plan

        if self.given is not None:
            return self.given, f"the plan of {self.path}" if self.path else "the plan that was given"
        known, words = self.scenarios, "planned here for the stored loads"
        if known is None:
            first = self.loads
            known = replace(first, tokens=first.tokens[:1], names=first.names[:1], notes=())
            words = "planned here for the first window; give a PLAN for a robust one"
        wanted = PlanOptions(time_limit_s=0.0, seed=self.asked.seed)
        plan = make_plan(self.deployment, known, wanted, on_stage=say, cancel=cancel)
        if plan.interrupted:
            Budget(cancel=cancel).unless_cancelled()
            raise KeyboardInterrupt
        return plan, words


def _passed_over(plan: Plan) -> Iterator[str]:
    """Yield what of a plan no policy asks about, though placements are scored with it."""
    if plan.spread != "gpu":
        yield f"re-plans put copies of an expert on different GPUs; the plan, in different {plan.spread}s"
    if plan.split != "even":
        yield f"re-plans are made for an even split, and scored under the plan's ({plan.split})"


def deployment_of(
    plan: Plan | None, model: Any, cluster: Any, make: Callable[[Any, Any], Deployment]
) -> Deployment:
    """Return what a plan is for, else what ``make`` makes of ``model`` and ``cluster``.

    Raises
    ------
    InputError
        If there is neither, or a name beside a plan is not the plan's.
    """
    from cost.model import Model
    from cost.resolve import resolve_model
    from topology.cluster import Cluster
    from topology.files.resolve import resolve_cluster

    if plan is None:
        if model is None or cluster is None:
            lacks = input_name("model") if model is None else input_name("cluster")
            raise InputError(
                f"{lacks} is missing: give a PLAN, or {input_name('model')} and {input_name('cluster')} "
                f"to make one for."
            )
        return make(model, cluster)
    planned = plan.deployment
    for given, kind, name, word, resolve in (
        (model, Model, planned.model.name, "of", resolve_model),
        (cluster, Cluster, planned.cluster.name, "for", resolve_cluster),
    ):
        what = kind.__name__.lower()
        found: Any = given if given is None or isinstance(given, kind) else resolve(str(given))
        if found is not None and found.name != name:
            raise InputError(f"the plan is {word} {name}; leave it out.", field=what, value=found.name)
    return planned


def stored(plan: Plan | None, scenarios: ExpertLoads | None) -> ExpertLoads | None:
    """Return the loads that are known beforehand: those given, else those that a plan was made for."""
    if scenarios is None and plan is not None and plan.loads is not None and not plan.loads.synthetic:
        return plan.loads
    return scenarios
