"""The server: a socket on the loopback interface alone."""

from __future__ import annotations

import socket

import uvicorn

from rackplan.serve.app import Page
from rackplan.serve.opened import Opened
from rackplan.serve.security import PromptProtocol
from topology.base.errors import InputError

HOST = "127.0.0.1"


def listen(port: int) -> socket.socket:
    """Return a socket that listens at a port of the loopback interface, any free one for 0.

    Raises
    ------
    InputError
        If the port is taken, or not ours to take.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise InputError(
            f"--port {port}: {(error.strerror or 'cannot listen').lower()}; give another, or 0 for a free one."
        ) from None
    listener.listen(128)
    return listener


def serve(opened: Opened, listener: socket.socket) -> None:
    """Answer until Ctrl-C."""
    config = uvicorn.Config(
        Page(opened).app(),
        http=PromptProtocol,
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=1,
        limit_concurrency=64,
        ws="none",
        lifespan="on",
    )
    uvicorn.Server(config).run(sockets=[listener])
