"""The local page."""

from __future__ import annotations

import signal
import sys

from rackplan.commands.options import command
from rackplan.commands.output import Run, print_text
from rackplan.inputs import plan_notes
from rackplan.requests import ServeRequest
from topology.base.errors import InputError


@command(ServeRequest, json=False)
def serve(request: ServeRequest, _: Run) -> None:
    """Only this machine can open it."""
    try:
        import starlette
        import uvicorn
    except ImportError:
        raise InputError("serve needs Starlette and uvicorn: pip install 'rackplan[serve]'.") from None
    del starlette, uvicorn
    from rackplan.serve.opened import Opened
    from rackplan.serve.server import HOST, listen
    from rackplan.serve.server import serve as answer
    from topology.base.interrupts import CtrlC

    opened = Opened.of(request.plan)
    found = listen(request.port)
    notes = [note for one in opened.plans for note in plan_notes(one.plan)]
    print_text(notes, [f"rackplan is running at http://{HOST}:{found.getsockname()[1]}/ (Ctrl-C stops it)\n"])
    sys.stdout.flush()
    try:
        answer(opened, found)
    except KeyboardInterrupt:
        pass
    finally:
        if isinstance(handler := signal.getsignal(signal.SIGINT), CtrlC):
            handler.came = False  # it is meant to end so
        found.close()
