"""The server: a socket on the loopback interface alone, and what is said when it listens."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from topology.base.errors import InputError

if TYPE_CHECKING:
    from rackplan.serve.start import Start

HOST = "127.0.0.1"
PORT = 8710
"""Where nobody says; `--port 0` takes a free one."""


def listen(port: int) -> socket.socket:
    """Return a socket that listens at a port of the loopback interface, any free one for 0.

    Raises
    ------
    InputError
        If the port is taken, or not ours to take.
    """
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
    except OSError as error:
        found.close()
        raise InputError(
            f"--port {port}: {(error.strerror or 'cannot listen').lower()}; give another, or 0 for a free one."
        ) from None
    found.listen(128)
    return found


def serve(start: Start, found: socket.socket) -> None:
    """Answer until Ctrl-C."""
    import uvicorn

    from rackplan.serve.app import make_app

    app = make_app(start, found.getsockname()[1])
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=1,
        ws="none",
        lifespan="on",
    )
    uvicorn.Server(config).run(sockets=[found])
