"""Who may ask: this machine alone, from the page that this server gave; and what a browser may do with answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MOST_BODY = 2_000_000
"""Bytes of a request: five dropped files and what is asked beside them."""
_LENGTH = re.compile(r"[0-9]{1,15}")
POLICY = (
    # Plotly styles what it draws with style attributes; scripts are files of ours, and nothing is asked elsewhere
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
)


class TooLongError(Exception):
    """A request with more bytes than are read."""


class Guard:
    """Refuses requests that name another host, come from another page, or are too long; sets the headers of all.

    A name of another site may resolve to this machine (DNS rebinding), so a request says the host that it was sent
    to: a loopback name, with the port of this server.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}" for name in LOOPBACK}
        if port == 80:
            self._hosts |= set(LOOPBACK)
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        from starlette.responses import JSONResponse

        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refusal(scope)
        if refused is not None:
            status, why = refused
            await JSONResponse({"errors": {"request": why}}, status)(scope, receive, _with_headers(send))
            return
        await self._app(scope, _counted(receive), _with_headers(send))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and reason of a request that is refused; None where it is not."""
        found: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            found.setdefault(name.lower(), []).append(value.decode("latin-1").lower())
        hosts = found.get(b"host", [])
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return 403, "this server answers to its own address on this machine alone."
        if any(origin not in self._origins for origin in found.get(b"origin", [])):
            return 403, "a request of another page."
        if any(site not in ("same-origin", "none") for site in found.get(b"sec-fetch-site", [])):
            return 403, "a request of another page."
        if scope["method"] in ("POST", "PUT", "PATCH"):
            kind = found.get(b"content-type", [""])[0].split(";")[0].strip()
            if kind != "application/json":
                return 415, "expected application/json."
            length = found.get(b"content-length", ["0"])[0]
            if not _LENGTH.fullmatch(length) or int(length) > MOST_BODY:
                return 413, f"more than {MOST_BODY:,} bytes."
        return None


def _counted(receive: Receive) -> Receive:
    """Return ``receive`` that stops at the most bytes that are read, whatever the request said of its length."""
    count = 0

    async def read() -> Message:
        nonlocal count
        message = await receive()
        count += len(message.get("body", b""))
        if count > MOST_BODY:
            raise TooLongError
        return message

    return read


def _with_headers(send: Send) -> Send:
    """Return ``send`` that puts the headers of every answer."""

    async def write(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *((name.encode(), value.encode()) for name, value in HEADERS if name.encode() not in given),
            ]
        await send(message)

    return write
