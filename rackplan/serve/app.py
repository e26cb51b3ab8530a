"""The requests of the page and their answers; what is wrong comes back as ``{"errors": {field: words}}``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rackplan.serve.asked import Asked, FieldError, Point, read_asked, read_lost, read_order, read_point
from rackplan.serve.compute import BusyError, Compute
from rackplan.serve.jobs import Job, Jobs
from rackplan.serve.plot import plot
from rackplan.serve.point import drawing, point_data
from rackplan.serve.security import Guard, TooLongError
from rackplan.serve.start import Start
from topology.base.errors import InputError, RackplanError
from topology.base.reading import parse_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SCRIPTS = (
    "main.js",
    "state.js",
    "form.js",
    "sliders.js",
    "plot.js",
    "point.js",
    "jobs.js",
    "page.js",
    "api.js",
)
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
UNPROCESSABLE = 422
Handler = Callable[[Request], Awaitable[Response]]


@dataclass
class Served:
    """What the requests share."""

    start: Start
    compute: Compute = field(default_factory=Compute)
    jobs: Jobs = field(default_factory=Jobs)


def make_app(start: Start, port: int) -> Starlette:
    """Return the application that answers at ``port`` of the loopback interface."""
    served = Served(start)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        served.compute.put(
            lambda: plot(read_asked(start.asked))
        )  # imports and the first answer, before it is asked
        yield
        served.jobs.close()

    def route(path: str, answer: Callable[[Request, Served], Awaitable[Response]], method: str) -> Route:
        return Route(path, _saying_errors(lambda request: answer(request, served)), methods=[method])

    app = Starlette(
        routes=[
            route("/", _page, "GET"),
            route("/static/{name}", _static, "GET"),
            route("/api/start", _start, "GET"),
            route("/api/plot", _plot, "POST"),
            route("/api/point", _point, "POST"),
            route("/api/drawing", _drawing, "POST"),
            route("/api/jobs", _order, "POST"),
            route("/api/jobs/{id}", _status, "GET"),
            route("/api/jobs/{id}/result", _result, "GET"),
            route("/api/jobs/{id}/plan", _plan, "GET"),
            route("/api/jobs/{id}/cancel", _cancel, "POST"),
        ],
        middleware=[Middleware(Guard, port=port)],
        exception_handlers={HTTPException: _refused},
        lifespan=lifespan,
    )
    app.state.served = served
    return app


def _saying_errors(answer: Handler) -> Handler:
    """Return a handler whose mistakes are words: 4xx for what the page asks, never a traceback."""

    @wraps(answer)
    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except FieldError as error:
            return _errors(error.fields)
        except RackplanError as error:
            return _errors({"request": str(error)})
        except BusyError:
            return _errors({"request": "too many requests wait already; try again."}, 429)
        except TooLongError:
            return _errors({"request": "the request is too long."}, 413)
        except (asyncio.CancelledError, ClientDisconnect):
            return Response(status_code=499)

    return answered


def _errors(fields: dict[str, str], status: int = UNPROCESSABLE) -> Response:
    return JSONResponse({"errors": fields}, status)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    return _errors({"request": f"{error.detail}."}, error.status_code)


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request.

    Raises
    ------
    FieldError
        If it is none.
    """
    text = await request.body()
    try:
        data = parse_json(text.decode(), "the request")
        json.dumps(data, ensure_ascii=False).encode()  # half a surrogate pair: no answer could repeat it
    except InputError as error:
        raise FieldError({"request": str(error)}) from None
    except (ValueError, RecursionError):
        raise FieldError({"request": "expected one JSON object."}) from None
    if not isinstance(data, dict):
        raise FieldError({"request": "expected one JSON object."})
    return data


def _only(data: dict[str, Any], *known: str) -> None:
    """Refuse keys of a request that are not among ``known``.

    Raises
    ------
    FieldError
        If there are some.
    """
    if unknown := [name for name in data if name not in known]:
        raise FieldError({name[:40]: "unknown field." for name in unknown})


async def _page(_: Request, served: Served) -> Response:
    del served
    return _file("index.html")


async def _static(request: Request, served: Served) -> Response:
    """Answer with one of the files of the page, of its pictures or of Plotly, by its name alone."""
    del served
    name = request.path_params["name"]
    if name == "plotly.js":
        return Response(_plotly(), media_type=TYPES[".js"], headers={"cache-control": "max-age=86400"})
    if name in ("pictures.js", "pictures.css"):
        from rackplan.render import pictures

        made = pictures.script() if name.endswith(".js") else pictures.style()
        return Response(made, media_type=TYPES[name[name.rindex(".") :]])
    if name not in (*SCRIPTS, "page.css"):
        raise HTTPException(404, "there is no such file")
    return _file(name)


def _file(name: str) -> Response:
    text = files("rackplan.serve").joinpath("static", name).read_text(encoding="utf-8")
    return Response(text, media_type=TYPES[name[name.rindex(".") :]])


def _plotly() -> bytes:
    return files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()


async def _start(_: Request, served: Served) -> Response:
    return JSONResponse(await asyncio.to_thread(served.start.data))


async def _plot(request: Request, served: Served) -> Response:
    data = await _body(request)
    return JSONResponse(await served.compute.run(lambda: plot(read_asked(data)), request.is_disconnected))


async def _point(request: Request, served: Served) -> Response:
    return await _of_point(request, served, point_data)


async def _drawing(request: Request, served: Served) -> Response:
    return await _of_point(request, served, drawing)


async def _of_point(
    request: Request, served: Served, answer: Callable[[Asked, Point], dict[str, Any]]
) -> Response:
    data = await _body(request)
    _only(data, "asked", "point")
    asked = read_asked(data.get("asked"))
    point = read_point(data.get("point"), len(asked.clusters))
    return JSONResponse(await served.compute.run(lambda: answer(asked, point), request.is_disconnected))


async def _order(request: Request, served: Served) -> Response:
    """Put a job in line: ``place``, ``lose``, ``open`` or ``report``."""
    data = await _body(request)
    kind = data.get("kind")
    order: dict[str, Any] = {"kind": kind}
    if kind in ("place", "report") and "asked" in data:
        _only(data, "kind", "asked", *(["order"] if kind == "place" else []))
        asked = read_asked(data["asked"])
        order["asked"] = data["asked"]
        if kind == "place":
            read_order(data.get("order"), len(asked.clusters))
            order["order"] = data["order"]
    elif kind in ("lose", "report"):
        _only(data, "kind", "of", *(["lost"] if kind == "lose" else []))
        of = _job(data.get("of"), served)
        if not of.plan:
            raise FieldError({"of": "that job has no plan."})
        order |= {"plan": of.plan, "command": str((of.result or {}).get("command", ""))}
        if kind == "lose":
            order["lost"] = list(read_lost(data.get("lost")))
    elif kind == "open":
        _only(data, "kind", "plan")
        place = data.get("plan", 0)
        if type(place) is not int or not 0 <= place < len(served.start.plans):
            raise FieldError({"plan": "no plan of that number was opened."})
        opened = served.start.plans[place]
        order |= {"plan": opened.text, "command": opened.command}
    else:
        raise FieldError({"kind": "expected place, lose, open or report."})
    return JSONResponse(served.jobs.add(order).status(), 202)


def _job(name: object, served: Served) -> Job:
    job = served.jobs.get(name) if isinstance(name, str) else None
    if job is None:
        raise HTTPException(404, "there is no such job")
    return job


async def _status(request: Request, served: Served) -> Response:
    return JSONResponse(_job(request.path_params["id"], served).status())


async def _result(request: Request, served: Served) -> Response:
    job = _job(request.path_params["id"], served)
    if job.result is None:
        raise HTTPException(409, job.message or "that job has no result yet")
    return JSONResponse(job.result)


async def _plan(request: Request, served: Served) -> Response:
    job = _job(request.path_params["id"], served)
    if not job.plan:
        raise HTTPException(409, "that job has no plan")
    headers = {"content-disposition": 'attachment; filename="plan.json"'}
    return Response(job.plan, media_type="application/json", headers=headers)


async def _cancel(request: Request, served: Served) -> Response:
    job = _job(request.path_params["id"], served)
    served.jobs.cancel(job)
    return JSONResponse(job.status())
