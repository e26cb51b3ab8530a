"""``rackplan replan``: change a running plan for other loads or lost GPUs, with few moves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackplan.commands.options import INTERRUPTED, JsonFlag, Loads, OutputFolder, Seed, Windows

if TYPE_CHECKING:
    from placement.replan.replan_plan import Replanned, ReplanOptions


NAME = "replan"


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan.json that runs.")],
    output: OutputFolder,
    loads: Loads = None,
    windows: Windows = None,
    lost: Annotated[
        list[str] | None,
        typer.Option(
            "--lost",
            metavar="ID",
            help="GPU, node, rack or domain that is gone (d0.n3.g1, d0.n3); repeatable.",
        ),
    ] = None,
    max_moves: Annotated[
        int | None, typer.Option("--max-moves", metavar="N", help="Most copies to move, over all layers.")
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option("--max-bytes", metavar="N", help='Most bytes to move, or "200 GB".')
    ] = None,
    spread: Annotated[
        str | None,
        typer.Option(
            "--spread",
            help="Copies of an expert in different gpu, node or rack. [as in the plan]",
            show_default=False,
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective", help="mean or worst over several loads. [as in the plan]", show_default=False
        ),
    ] = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", help="Seconds to search; 0: one pass, the same every time.")
    ] = 10.0,
    seed: Seed = 0,
    json: JsonFlag = False,
) -> None:
    """Re-plan for other loads or lost GPUs, few moves. Writes plan.json, moves.json, report.html and topology.svg."""
    from placement.options import require_objective, require_spread
    from placement.plan_file import plan_to_json, read_plan
    from placement.replan.replan_plan import ReplanOptions, replan_plan
    from rackplan.commands.plan import write_plan
    from rackplan.inputs import digests, model_loads
    from rackplan.output import output_folder, print_error, print_json, print_text
    from rackplan.progress import progress
    from rackplan.replan_summary import moves_to_dict, replan_summary
    from rackplan.report.replan_section import replan_section
    from topology.errors import InputError

    options = ReplanOptions(
        lost=tuple(lost or ()),
        max_moves=max_moves,
        max_bytes=None if max_bytes is None else _bytes(max_bytes),
        spread=None if spread is None else require_spread(spread),
        objective=None if objective is None else require_objective(objective),
        time_limit_s=time_limit,
        seed=seed,
    )
    if output.resolve() == plan.resolve().parent:
        raise InputError(
            f"-o {output}: it is the folder of {plan}, which would be overwritten; choose another."
        )
    old = read_plan(plan)
    other = model_loads(old.deployment.model, loads, seed, windows) if loads else None
    with output_folder(output) as folder:
        with progress() as reporter:
            reporter.stage("re-planning")
            found = replan_plan(old, other, options, on_progress=reporter.replan)
            reporter.stage("writing")
            files = write_plan(
                found.plan,
                folder,
                digests([str(plan), *(loads or [])]),
                first=replan_section(found),
                moves=plan_to_json(moves_to_dict(found)),
            )
        if json:
            print_json(_as_json(found, options, files))
        else:
            print_text(replan_summary(found, options, files))
    if found.plan.interrupted:
        print_error("interrupted; the best re-plan so far was written.")
        raise typer.Exit(INTERRUPTED)


def _bytes(text: str) -> float:
    """Parse ``2e11`` or ``200 GB``."""
    from topology.units import parse_quantity

    try:
        return float(text)
    except ValueError:
        return parse_quantity(text, "byte", "--max-bytes")


def _as_json(found: Replanned, options: ReplanOptions, files: dict[str, str]) -> dict[str, Any]:
    from placement.plan_file import plan_score_to_dict
    from rackplan.replan_summary import totals_to_dict

    plan = found.plan
    proof = plan.proof
    return {
        **totals_to_dict(found),
        "lost": list(options.lost),
        "score": plan_score_to_dict(plan),
        "proof": {
            "status": proof.status,
            "objective": proof.objective,
            "bound": proof.bound,
            "gap": proof.gap,
        },
        "notes": list(plan.notes),
        "files": files,
    }
