"""What an installation has, and what is missing."""

from __future__ import annotations

import typer

from rackplan import options

NOT_USABLE = 1


def doctor(json: options.JsonFlag = False) -> None:
    """Say what is installed, what is missing and how to get it. Exit code 1 if rackplan cannot work."""
    from rackplan.doctor.examine import examine
    from rackplan.output import show
    from rackplan.views.doctor import doctor_view

    found = examine()
    show(doctor_view(found), json=json)
    if found.missing:
        raise typer.Exit(NOT_USABLE)
