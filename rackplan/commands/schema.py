"""Schemas of the JSON that commands print and write."""

from __future__ import annotations

from typing import Annotated

from rackplan import options
from rackplan.options import arg


def _names(incomplete: str) -> list[str]:
    from rackplan.schemas import NAMES

    return [name for name in NAMES if name.startswith(incomplete.lower())]


def schema(
    name: Annotated[
        str | None,
        arg(
            "[COMMAND|FILE]",
            "A command, or a file like plan.json; without one the list.",
            autocompletion=_names,
        ),
    ] = None,
    json: options.JsonFlag = False,
) -> None:
    """Print the JSON Schema of what a command prints with --json, or of a file. Without a name the list of them."""
    from rackplan.output import print_schema, show
    from rackplan.views.schema import schemas_view

    if name is None:
        show(schemas_view(), json=json)
    else:
        print_schema(name)
