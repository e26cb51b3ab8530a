"""What happens while an engine serves: recorded loads replayed through balancers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rackplan import options
from rackplan.options import Group, arg, opt
from rackplan.replaying import STEPS


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
            "static, vllm, sglang, rackplan[:BUDGET] (rackplan:5%, rackplan:0, rackplan:none) or "
            "rackplan-linear[:BUDGET] (from the engine's own placement, without stored loads); "
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
    from rackplan.output import command_line, json_text, output_forms, show
    from rackplan.progress import progress
    from rackplan.render.html import page
    from rackplan.replaying import Replay, ReplayOptions, deployment_of, stored
    from rackplan.views.replay import replay_csv, replay_view
    from rackplan.views.replay_page import replay_page

    write = output_forms(output, "report.html", "replay.json", "replay.csv")
    asked = ReplayOptions(
        policies=tuple(policy or ()), intervals=tuple(interval or ()), steps_per_window=steps_per_window,
        windows=windows, redundant=made.redundant, ep=made.ep, seed=made.seed,
    )  # fmt: skip
    priced = options.Pricing(weights=made.weights, settings=made.settings)
    given = None if plan is None else options.with_settings(options.read_noted(plan), made.settings)
    where = deployment_of(given, model, cluster, lambda m, c: priced.deployment(m, c, serving))
    read = asked.windows_of(where.model, loads)
    known = options.model_loads(where.model, scenarios, made.seed) if scenarios else None
    path = "" if plan is None else str(plan)
    ready = Replay(given, path, where, read, stored(given, known), asked)
    with progress() as reporter:
        found = ready.run(reporter.stage)
    view = replay_view(found)
    if write is not None:
        write(
            {
                "report.html": lambda: page(replay_page(found, command_line())),
                "replay.json": lambda: json_text(view.data),
                "replay.csv": lambda: replay_csv(found),
            }
        )
    show(view, json=json)
    if found.result.interrupted:
        raise typer.Exit(options.INTERRUPTED)
