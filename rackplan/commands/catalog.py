"""``rackplan catalog``: what is known, with where each figure comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from rackplan.commands.options import JsonFlag

NAME = "catalog"


def run(
    what: Annotated[
        str | None,
        typer.Argument(metavar="[gpus|clusters|models|NAME]", help="A list, or one entry with its figures."),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Show GPUs, clusters and models, each figure with its source."""
    from rackplan.catalog_view import cluster_lines, entry, gpu_lines, model_lines
    from rackplan.output import print_json, print_text

    lists = {"clusters": cluster_lines, "gpus": gpu_lines, "models": model_lines}
    if what is None or what in lists:
        shown = lists if what is None else {what: lists[what]}
        tables = {name: make() for name, make in shown.items()}
        if json:
            print_json({name: rows for name, (rows, _) in tables.items()})
        else:
            print_text("\n\n".join("\n".join(lines) for _, lines in tables.values()))
        return
    data, lines = entry(what)
    if json:
        print_json(data)
    else:
        print_text("\n".join(lines))
