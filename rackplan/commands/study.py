"""Studies: many points on all cores or a Ray cluster, as one dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rackplan import options
from rackplan.options import INTERRUPTED, Group, arg, opt
from topology.base.errors import InputError

LOG_S = 30.0
"""Seconds between two lines of progress where standard error is no terminal."""


@dataclass(frozen=True, kw_only=True)
class Where(Group):
    """Where points are priced."""

    engine: Annotated[
        str, opt("--engine", "local: processes of this machine; ray: tasks of a Ray cluster.")
    ] = "local"
    address: Annotated[
        str | None,
        opt("--address", "Of the Ray cluster; default: one is begun on this machine.", "HOST:PORT"),
    ] = None
    workers: Annotated[
        int | None, opt("--workers", "Points priced at once. [all cores]", "N", show_default=False, min=1)
    ] = None


def study(
    *,
    study: Annotated[Path, arg("STUDY.yaml|DIR", "What to price, or the folder of a study to go on with.")],
    where: Where,
    optimize: Annotated[
        bool, opt("--optimize", "Search the ranges under `optimize` (Optuna) in place of a grid or sample.")
    ] = False,
    output: Annotated[
        Path | None,
        opt("-o --output", "Folder for results and report. [below out/]", "DIR", show_default=False),
    ] = None,
    json: options.JsonFlag = False,
) -> None:
    """Price a grid or a sample of points, on all cores or a cluster. It can be stopped and goes on where it was."""
    from rackplan.output import command_line, show
    from rackplan.progress import progress
    from rackplan.results import page_of
    from rackplan.studies.run import open_study, run_study
    from rackplan.views.study import study_view
    from topology.base.files import write_whole

    asked, folder = open_study(study, output)
    with progress(every_s=LOG_S) as reporter:
        reporter.stage("starting workers")
        found = run_study(
            asked,
            folder,
            optimize=optimize,
            engine=where.engine.lower(),
            address=where.address,
            workers=where.workers,
            say=reporter.stage,
        )
    page = folder / "report.html"
    write_whole(page, page_of(found, command_line()).encode())
    show(study_view(found, {"report": str(page)}), json=json)
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)
    if found.rows and all(row["status"] == "failed" for row in found.rows):
        raise InputError(f"every point failed; the first: {found.rows[0]['reason']}")
