"""Schemas of the JSON that commands read, print and write."""

from __future__ import annotations

from rackplan.commands.options import JsonFlag, command
from rackplan.requests import SchemaRequest


@command(SchemaRequest)
def schema(request: SchemaRequest, *, json: JsonFlag = False) -> None:
    """Print the JSON Schema of a request, of a command's --json output, or of a file.

    Without a name the list of them.
    """
    from rackplan.commands.output import print_schema, show
    from rackplan.report.schema import schemas_doc

    if request.name is None:
        show(schemas_doc(), json=json)
    else:
        print_schema(request.name)
