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
    listener = listen(request.port)
    notes = [note for entry in opened.plans for note in plan_notes(entry.plan)]
    print_text(
        notes, [f"rackplan is running at http://{HOST}:{listener.getsockname()[1]}/ (Ctrl-C stops it)\n"]
    )
    sys.stdout.flush()
    try:
        answer(opened, listener)
    except KeyboardInterrupt:
        pass
    finally:
        if isinstance(handler := signal.getsignal(signal.SIGINT), CtrlC):
            handler.came = False  # it is meant to end so
        listener.close()
