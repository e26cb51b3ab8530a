"""Access control: only this machine and only pages of this server, plus browser security headers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import h11
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    # Plotly styles what it draws with style attributes; scripts are files of ours, and nothing is asked elsewhere
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
REQUEST_S = 10.0
"""Time limit for receiving a request, after which the connection is closed."""


class Guard:
    """Rejects cross-site and form requests, and adds security headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def write(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request_headers = Headers(scope=scope)
        page_origin = f"http://{request_headers.get('host', '')}".lower()
        foreign = any(origin.lower() != page_origin for origin in request_headers.getlist("origin"))
        refused = None
        if foreign or any(
            site not in ("same-origin", "none") for site in request_headers.getlist("sec-fetch-site")
        ):
            refused = JSONResponse({"errors": {"request": "cross-site request."}}, 403)
        elif scope["method"] == "POST" and not _is_json(request_headers):
            refused = JSONResponse({"errors": {"request": "expected application/json."}}, 415)
        await (refused or self._app)(scope, receive, write)


def _is_json(headers: Headers) -> bool:
    return headers.get("content-type", "").split(";")[0].strip().lower() == "application/json"


MIDDLEWARE = [
    Middleware(Guard),
    # a name of another site may resolve to this machine (DNS rebinding)
    Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"]),
]


class PromptProtocol(H11Protocol):
    """HTTP protocol that closes connections with missing or slow requests."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Restart the timeout for the rest of an incomplete request."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        super().connection_lost(exc)
        self._unset()

    def _wait(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._unset()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_S, self.transport.close)

    def _unset(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
