"""``rackplan check``: would an engine load a plan file, and do what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackplan.commands.options import ENGINES, JsonFlag, ModelName

NAME = "check"
NOT_RIGHT = 2


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A plan as an engine loads it.")],
    engine: Annotated[str, typer.Option("--for", metavar="ENGINE", help=f"{ENGINES}.")],
    model: ModelName,
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", help="GPUs of the EP group.")],
    json: JsonFlag = False,
) -> None:
    """Say whether a plan file would load and be right. Exit code 2 if not."""
    from cost.resolve import resolve_model
    from placement.engines.mapping import model_facts
    from placement.engines.registry import check_file, require_engine
    from rackplan.engines_summary import check_json, check_summary
    from rackplan.output import print_error, print_json, print_text
    from topology.errors import InputError

    found = check_file(file, require_engine(engine, "--for"), model_facts(resolve_model(model)), gpus)
    if found.unreadable and not json:
        raise InputError(found.unreadable)
    if json:
        print_json(check_json(found))
    else:
        print_text(check_summary(found))
    if not found.right:
        print_error(found.verdict)
        raise typer.Exit(NOT_RIGHT)
