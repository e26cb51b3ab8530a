"""What happens while an engine serves: recorded loads replayed through balancers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackplan import options
from rackplan.options import arg, opt


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
    weights: Annotated[str | None, opt("--weights", "Format of the weights.", "DTYPE")] = None,
    settings: options.Settings = None,
    seed: options.Seed = 0,
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
    from rackplan.output import command_line, written
    from rackplan.progress import progress
    from rackplan.render.html import page
    from rackplan.replaying import Replay, ReplayOptions, deployment_of, stored
    from rackplan.views.replay import replay_blocks, replay_csv, replay_view

    finish = written(output, "replay", "replay.csv", json=json, html="report.html")
    asked = ReplayOptions(policies=tuple(policy or ()), seed=seed)
    priced = options.Pricing(weights=weights, settings=settings)
    given = None if plan is None else options.with_settings(options.read_noted(plan), settings)
    where = deployment_of(given, model, cluster, lambda m, c: priced.deployment(m, c, options.Serving()))
    read = asked.windows_of(where.model, loads)
    path = "" if plan is None else str(plan)
    ready = Replay(given, path, where, read, stored(given, None), asked)
    with progress() as reporter:
        found = ready.run(reporter.stage)
    finish(
        replay_view(found),
        {
            "report.html": lambda: page(replay_blocks(found, command_line())),
            "replay.csv": lambda: replay_csv(found),
        },
    )
    if found.result.interrupted:
        raise typer.Exit(options.INTERRUPTED)
