"""What happens while an engine serves: recorded loads replayed through balancers."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackplan import options
from rackplan.options import Group, arg, opt
from topology.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cost.deployment import Deployment
    from cost.loads import ExpertLoads
    from cost.model import Model
    from placement.plan import Plan
    from rackplan.progress import Reporter
    from rackplan.views.replay import Replayed

STEPS = 3000
"""Steps of a window where nobody says: vLLM's from one re-plan to the next."""
_ALL = 1 << 30
"""Windows that a recording may have: none is merged."""
_SUFFIXES = (".html", ".json", ".csv")


@dataclass(frozen=True, kw_only=True)
class Made(Group):
    """How the plan is made where none is given."""

    redundant: options.Redundant = None
    ep: Annotated[int | None, opt("--ep", "GPUs that a layer's experts are spread over.")] = None
    weights: Annotated[str | None, opt("--weights", "Format of the weights.", "DTYPE")] = None
    settings: options.Settings = None
    seed: options.Seed = 0


def replay(
    *,
    plan: Annotated[Path | None, arg("PLAN", "The plan.json that runs first.")] = None,
    model: Annotated[
        str | None, opt("--model", "Without PLAN: catalog name, Hugging Face id or config.json.", "M")
    ] = None,
    cluster: Annotated[
        str | None, opt("--cluster", "Without PLAN: catalog name, name@GPUS or a YAML file.", "C")
    ] = None,
    loads: Annotated[
        list[str],
        opt("--loads", "Recording of windows in order, two or more over all files; repeatable.", "FILE"),
    ],
    policy: Annotated[
        list[str] | None,
        opt(
            "--policy",
            "static, vllm, sglang, flashlb, swift, or rackplan[:BUDGET] (rackplan:5%, rackplan:0, rackplan:none); "
            "repeatable. [all]",
            "NAME",
            show_default=False,
        ),
    ] = None,
    scenarios: Annotated[
        list[str] | None,
        opt("--scenarios", "Stored loads that static and rackplan know beforehand; repeatable.", "FILE"),
    ] = None,
    interval: Annotated[
        list[str] | None,
        opt(
            "--interval",
            "Steps between re-plans, or windows (2w); repeatable. [each engine's own; rackplan: several]",
            "N|Nw",
            show_default=False,
        ),
    ] = None,
    steps_per_window: Annotated[
        int, opt("--steps-per-window", "Steps that a window stands for.", "N")
    ] = STEPS,
    windows: Annotated[
        int | None,
        opt("--windows", "Windows that a recording becomes at most: more are merged. [as recorded]", "N"),
    ] = None,
    serving: options.Serving,
    made: Made,
    output: Annotated[
        Path | None,
        opt(
            "-o --output",
            "Folder for page, data and a row per window, or one of them.",
            "DIR|FILE.html|.json|.csv",
        ),
    ] = None,
    json: options.JsonFlag = False,
) -> None:
    """Replay recorded loads through online balancers. Balance on what comes next, moves, seconds lost, tokens."""
    from placement.online.policies import DEFAULT, interval_windows, require_names
    from rackplan.output import show
    from rackplan.progress import progress
    from rackplan.views.replay import replay_view

    if output is not None and output.suffix.lower() not in ("", *_SUFFIXES) and not output.is_dir():
        raise InputError(
            f"-o {output}: a replay is written to a folder, or as {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}."
        )
    if steps_per_window < 1:
        raise InputError(f"--steps-per-window {steps_per_window}: expected 1 or more.")
    require_names(policy or DEFAULT)
    interval_windows(interval or [], steps_per_window)  # before anything is computed
    asked = _Asked(policy or [], interval or [], steps_per_window, loads, scenarios or [], windows)
    ready = _Ready.of(plan, model, cluster, serving, made, asked)
    with progress() as reporter:
        found = ready.replayed(asked, made, reporter)
    if output is not None:
        _write(found, output)
    show(replay_view(found), json=json)
    if found.result.interrupted:
        raise typer.Exit(options.INTERRUPTED)


@dataclass(frozen=True)
class _Asked:
    """What is asked of a replay."""

    names: list[str]
    """Policies; empty: all that apply."""
    intervals: list[str]
    steps_per_window: int
    loads: list[str]
    scenarios: list[str]
    windows: int | None

    def windows_of(self, model: Model, seed: int) -> ExpertLoads:
        """Read the windows in order.

        Raises
        ------
        InputError
            If they do not fit the model, or there are fewer than two.
        """
        from cost.loads import is_generator
        from cost.traces.open import open_recording
        from cost.traces.windows import MOST_WINDOWS

        files = [text for text in self.loads if not is_generator(text)]
        stepwise = [text for text in files if open_recording(text).of_steps]
        usual = MOST_WINDOWS if stepwise else _ALL
        most = usual if self.windows is None else self.windows
        found = options.model_loads(model, self.loads, seed, most)
        if found is not None and stepwise:
            each = (
                f"each window stands for {self.steps_per_window:,} steps here (--windows, --steps-per-window)"
            )
            note = f"{', '.join(Path(text).name for text in stepwise)}: single steps were recorded; {each}"
            found = replace(found, notes=(*found.notes, note))
        if found is None or len(found.tokens) < 2:
            raise InputError(
                f"--loads {', '.join(self.loads)}: one window with tokens; a replay plans on one and scores on the "
                "next: give a recording of two or more, or several files in order."
            )
        return found


@dataclass(frozen=True, eq=False)
class _Ready:
    """A plan that is given, or what one is made for; and the loads."""

    given: Plan | None
    path: str
    deployment: Deployment
    loads: ExpertLoads
    scenarios: ExpertLoads | None

    @classmethod
    def of(
        cls,
        path: Path | None,
        model: str | None,
        cluster: str | None,
        serving: options.Serving,
        made: Made,
        asked: _Asked,
    ) -> _Ready:
        """Read what is given.

        Raises
        ------
        InputError
            If there is no plan and no model and cluster, they are not those of the plan, or loads do not fit.
        """
        given = None if path is None else options.with_settings(options.read_noted(path), made.settings)
        if given is not None:
            _require_same(given, model, cluster)
            deployment = given.deployment
        elif model is None or cluster is None:
            lacks = "--model" if model is None else "--cluster"
            raise InputError(f"{lacks} is missing: give a PLAN, or --model and --cluster to make one for.")
        else:
            priced = options.Pricing(weights=made.weights, settings=made.settings)
            deployment = priced.deployment(model, cluster, serving)
        loads = asked.windows_of(deployment.model, made.seed)
        scenarios = None
        if asked.scenarios:
            scenarios = options.model_loads(deployment.model, asked.scenarios, made.seed)
        elif given is not None and given.loads is not None and not given.loads.synthetic:
            scenarios = given.loads
        return cls(given, "" if path is None else str(path), deployment, loads, scenarios)

    def plan(self, made: Made, reporter: Reporter) -> tuple[Plan, str]:
        """Return the plan that runs first, and what it was made for."""
        from placement.options import PlanOptions
        from placement.planner import make_plan

        if self.given is not None:
            return self.given, f"the plan of {self.path}"
        known, words = self.scenarios, "planned here for the stored loads"
        if known is None:
            first = self.loads
            known = replace(first, tokens=first.tokens[:1], names=first.names[:1], notes=())
            words = "planned here for the first window; give a PLAN or --scenarios for a robust one"
        wanted = PlanOptions(redundant=made.redundant, time_limit_s=0.0, seed=made.seed, ep=made.ep)
        plan = make_plan(self.deployment, known, wanted, on_stage=reporter.stage)
        if plan.interrupted:
            raise KeyboardInterrupt
        return plan, words

    def replayed(self, asked: _Asked, made: Made, reporter: Reporter) -> Replayed:
        """Replay the windows; Ctrl-C keeps those that are done."""
        from placement.online.policies import DEFAULT, entries, that_apply
        from placement.online.setting import plan_setting
        from placement.online.simulate import replay as run
        from placement.stop import Stop
        from rackplan.views.replay import Replayed

        plan, words = self.plan(made, reporter)
        setting = plan_setting(plan, asked.steps_per_window, self.scenarios)
        steps, count = asked.steps_per_window, len(self.loads.tokens)
        taking_part = entries(
            asked.names or DEFAULT, asked.intervals, steps_per_window=steps, windows=count, layers=setting.layers,
            planned=self.given is not None,
        )  # fmt: skip
        notes = list(self._passed_over(plan))
        if not asked.names:
            taking_part, left_out = that_apply(taking_part, setting.groups)
            notes += left_out
        result = run(
            self.loads.tokens,
            taking_part,
            setting,
            stop=Stop(),
            on_progress=lambda at, of, name: reporter.stage(
                f"replaying window {at} of {of}: {name} (Ctrl-C keeps the windows before)"
            ),
        )
        return Replayed(result, plan, self.loads, self.scenarios, words, self.path, tuple(notes))

    def _passed_over(self, plan: Plan) -> Iterator[str]:
        """Yield what of a plan no policy asks about, though placements are scored with it."""
        if plan.spread != "gpu":
            yield f"re-plans put copies of an expert on different GPUs; the plan, in different {plan.spread}s"
        if plan.split != "even":
            yield f"re-plans are made for an even split, and scored under the plan's ({plan.split})"


def _require_same(plan: Plan, model: str | None, cluster: str | None) -> None:
    """Refuse another model or cluster beside a plan.

    Raises
    ------
    InputError
        If one is given that is not the plan's.
    """
    from cost.resolve import resolve_model
    from topology.resolve import resolve_cluster

    if model is not None and resolve_model(model).name != plan.deployment.model.name:
        raise InputError(f"--model {model}: the plan is of {plan.deployment.model.name}; leave --model out.")
    if cluster is not None and resolve_cluster(cluster).name != plan.deployment.cluster.name:
        raise InputError(
            f"--cluster {cluster}: the plan is for {plan.deployment.cluster.name}; leave --cluster out."
        )


def _write(found: Replayed, path: Path) -> None:
    """Write the page, the data or the rows of windows; all three into a folder."""
    from rackplan.output import json_text, output_folder, write_together
    from rackplan.render.html import page
    from rackplan.views.replay import replay_csv, replay_page, replay_view
    from topology.files import write_whole

    makers: dict[str, Callable[[], str]] = {
        ".html": lambda: page(replay_page(found, shlex.join(["rackplan", *sys.argv[1:]]))),
        ".json": lambda: json_text(replay_view(found).data),
        ".csv": lambda: replay_csv(found),
    }
    suffix = path.suffix.lower()
    if suffix in makers:
        write_whole(path, makers[suffix]().encode())
        return
    with output_folder(path) as folder:
        names = {".html": "report.html", ".json": "replay.json", ".csv": "replay.csv"}
        write_together(folder, {names[kind]: make() for kind, make in makers.items()})
