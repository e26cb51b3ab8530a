"""Requests of the page and their answers; errors are returned as ``{"errors": {field: sentence}}``."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from importlib.resources import files
from itertools import count
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from rackplan.report import assets
from rackplan.serve.opened import Opened
from rackplan.serve.plans import PlanText, Shown, lose, open_plan, place, plan_report, report
from rackplan.serve.plot import plot
from rackplan.serve.point import drawing, point_data
from rackplan.serve.pool import Call, Pool
from rackplan.serve.question import (
    FieldError,
    LoseOrder,
    OpenOrder,
    Order,
    PageRequest,
    PlaceOrder,
    PointRequest,
    Question,
    read,
    read_order,
)
from rackplan.serve.security import MIDDLEWARE
from topology.base.errors import InputError
from topology.base.reading import parse_json

MAX_BODY_BYTES = 2_000_000
"""Maximum bytes of a request: five dropped files and the other fields."""
MAX_PLANS, MAX_JOBS_WAITING = 12, 3
"""Plans that are kept, and jobs that may wait."""
LOOKS_EVERY_S = 0.25
"""Interval at which a computation checks whether its client is still connected."""
STATIC = {path.name for path in files("rackplan.serve").joinpath("static").iterdir()} - {"index.html"}
TYPES = {"js": "text/javascript", "css": "text/css", "html": "text/html"}


class Page:
    """The page of one server: its processes, and the plans that its jobs made."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self.plans: OrderedDict[str, PlanText] = OrderedDict()
        self.jobs: dict[str, Call] = {}
        self._numbers = count(1)
        self._one_job = asyncio.Semaphore(1)

    @cached_property
    def pool(self) -> Pool:
        """The processes, which start with the server."""
        return Pool()

    def app(self) -> Starlette:
        """Return the application."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            warm_up = asyncio.create_task(self._warm_up())
            yield
            warm_up.cancel()
            self.pool.close()

        return Starlette(
            routes=[
                Route("/", lambda _: _file("index.html")),
                Route("/static/{name}", _static),
                Route("/api/start", lambda _: JSONResponse(self.opened.start)),
                Route("/api/plot", self._answering("the plot", Question, plot), methods=["POST"]),
                Route("/api/point", self._answering("the point", PointRequest, point_data), methods=["POST"]),
                Route(
                    "/api/drawing", self._answering("the drawing", PointRequest, drawing), methods=["POST"]
                ),
                Route("/api/jobs", self._job, methods=["POST"]),
                Route("/api/jobs/{id}/plan", self._plan),
                Route("/api/jobs/{id}/cancel", self._cancel, methods=["POST"]),
            ],
            middleware=MIDDLEWARE,
            exception_handlers={
                HTTPException: lambda _, error: _errors({"request": f"{error.detail}."}, error.status_code),
                FieldError: lambda _, error: _errors(error.fields, error.status),
                ClientDisconnect: lambda *_: Response(status_code=499),
            },
            lifespan=lifespan,
        )

    async def _warm_up(self) -> None:
        """Compute the first answer before it is asked for: imports too take their time."""
        with suppress(FieldError):
            await self.pool.run(Call("the plot", plot, read(Question, self.opened.start["asked"])))

    def _answering(self, name: str, kind: type[PageRequest], function: Callable[..., Any]) -> Any:
        """Return what answers a request with what a process makes of it, as long as the client is there."""

        async def answer(request: Request) -> Response:
            order = read(kind, await _body(request))
            task = asyncio.create_task(self.pool.run(Call(name, function, order)))
            while not task.done():
                await asyncio.wait([task], timeout=LOOKS_EVERY_S)
                if not task.done() and await request.is_disconnected():
                    task.cancel()
                    raise ClientDisconnect
            return JSONResponse(await task)

        return answer

    async def _job(self, request: Request) -> Response:
        """Do a job: lines of JSON tell how far it is, the last one what came of it."""
        call = self._call(read_order(await _body(request)))
        if len(self.jobs) > MAX_JOBS_WAITING:
            raise FieldError({"request": f"{MAX_JOBS_WAITING} jobs are already waiting; cancel one first."})
        name = f"job-{next(self._numbers)}"
        return StreamingResponse(self._lines(name, call), media_type="application/x-ndjson")

    async def _lines(self, name: str, call: Call) -> AsyncIterator[str]:
        """Yield how far a job is, and its result; the process ends with whoever listens."""
        begun = time.monotonic()
        self.jobs[name] = call
        task = asyncio.create_task(self._outcome(name, call))
        try:
            while not task.done():
                waited = {"id": name, "waited_s": round(time.monotonic() - begun, 1)}
                yield json.dumps(waited | call.progress) + "\n"
                await asyncio.wait([task], timeout=LOOKS_EVERY_S)
            yield json.dumps({"id": name} | await task) + "\n"
        finally:
            task.cancel()
            del self.jobs[name]

    async def _outcome(self, name: str, call: Call) -> dict[str, Any]:
        try:
            async with self._one_job:
                shown: Shown = await self.pool.run(call)
        except FieldError as error:
            return {"errors": error.fields}
        if shown.plan is not None:
            self.plans[name] = shown.plan
            while len(self.plans) > MAX_PLANS:
                self.plans.popitem(last=False)
        return {"result": shown.data}

    def _call(self, order: Order) -> Call:
        if isinstance(order, PlaceOrder):
            return Call("the plan", place, order, reports=True)
        if isinstance(order, OpenOrder):
            if order.plan >= len(self.opened.plans):
                raise FieldError({"plan": "no open plan has this number."})
            opened = self.opened.plans[order.plan]
            return Call("the plan", open_plan, PlanText(opened.text, opened.command), reports=True)
        if isinstance(order, LoseOrder):
            return Call("the re-plan", lose, self._made(order.of), order.lost, reports=True)
        if order.asked is not None:
            return Call("the report", report, order.asked, reports=True)
        return Call("the report", plan_report, self._made(order.of), reports=True)

    def _made(self, name: str) -> PlanText:
        if name not in self.plans:
            raise HTTPException(404, "this job has no plan")
        return self.plans[name]

    async def _plan(self, request: Request) -> Response:
        headers = {"content-disposition": 'attachment; filename="plan.json"'}
        text = self._made(request.path_params["id"]).text
        return Response(text, media_type="application/json", headers=headers)

    async def _cancel(self, request: Request) -> Response:
        call = self.jobs.get(request.path_params["id"])
        if call is not None:
            call.cancel()
        return JSONResponse({})


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"more than {MAX_BODY_BYTES:,} bytes")
    try:
        data = parse_json(body.decode(), "the request")
        json.dumps(data, ensure_ascii=False).encode()  # half a surrogate pair: no answer could repeat it
    except InputError as error:
        raise FieldError({"request": str(error)}) from None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise FieldError({"request": "expected one JSON object."})
    return data


def _errors(fields: dict[str, str], status: int) -> Response:
    return JSONResponse({"errors": fields}, status)


def _static(request: Request) -> Response:
    """Answer with one of the files of the page, of its pictures or of Plotly, by its name alone."""
    name = request.path_params["name"]
    if name == "plotly.js":
        headers = {"cache-control": "max-age=86400", "content-encoding": "gzip"}
        return Response(assets.plotly(), media_type=TYPES["js"], headers=headers)
    bundles = {"pictures.js": assets.script, "pictures.css": assets.style}
    if name in bundles:
        return Response(bundles[name](), media_type=TYPES[name.rpartition(".")[2]])
    if name not in STATIC:
        raise HTTPException(404, "no such file")
    return _file(name)


def _file(name: str) -> Response:
    text = files("rackplan.serve").joinpath("static", name).read_text(encoding="utf-8")
    return Response(text, media_type=TYPES[name.rpartition(".")[2]])
