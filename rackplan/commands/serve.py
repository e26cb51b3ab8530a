"""The local page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from rackplan.options import arg, opt
from topology.base.errors import InputError


def serve(
    *,
    plan: Annotated[
        Path | None, arg("PLAN|DIR", "A plan.json, the folder of one, or a folder of such folders.")
    ] = None,
    port: Annotated[int, opt("--port", "Port of the loopback interface; 0: a free one.")] = 8710,
) -> None:
    """Open a page to explore clusters, place experts and lose GPUs. It answers to this machine alone."""
    try:
        import starlette
        import uvicorn
    except ImportError:
        raise InputError("serve needs Starlette and uvicorn: pip install 'rackplan[serve]'.") from None
    del starlette, uvicorn
    from rackplan.progress import hide
    from rackplan.serve.opened import Opened
    from rackplan.serve.server import HOST, listen
    from rackplan.serve.server import serve as answer
    from topology.base.interrupts import CAME

    if not 0 <= port <= 65_535:
        raise InputError(f"--port {port}: expected 0 to 65535.")
    opened = Opened.of(plan)
    found = listen(port)
    hide()
    sys.stdout.write(f"rackplan is at http://{HOST}:{found.getsockname()[1]}/ (Ctrl-C ends it)\n")
    sys.stdout.flush()
    try:
        answer(opened, found)
    except KeyboardInterrupt:
        pass
    finally:
        CAME.clear()  # it is meant to end so
        found.close()
