"""``rackplan validate``: measured against predicted, row by row and in all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackplan.commands.options import JsonFlag

NAME = "validate"


def run(
    points: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[POINTS.csv ...]",
            help="Points in our format (docs/measurements.md), the silicon sample, or published points in words; "
            "default: those shipped.",
        ),
    ] = None,
    show_all: Annotated[
        bool,
        typer.Option("--all", help="Print every row (else, of long files, the 20 that are furthest off)."),
    ] = False,
    no_residual: Annotated[
        bool,
        typer.Option("--no-residual", help="Predict by the physics alone, without the learned correction."),
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Predict measured points and print how far off. Median, mean, bias, within 20 %, coverage, order of pairs."""
    from cost.validation.read import read_counted, shipped_files
    from rackplan.output import print_json, print_text
    from rackplan.progress import progress
    from rackplan.validate_summary import file_names, validate_json, validate_summary
    from rackplan.validation import Validation, validate

    paths = points or shipped_files()
    found: list[Validation] = []
    with progress() as reporter:
        for name, path in zip(file_names(paths), paths, strict=True):
            reporter.stage(f"predicting {name}")
            found.append(validate(name, *read_counted(path), residual=not no_residual))
    if json:
        print_json(validate_json(found))
    else:
        print_text("\n\n".join(validate_summary(one, show_all=show_all) for one in found))
