"""Python interface: the commands as functions that take and return objects.

Names of models and clusters mean what they mean on the command line; a :class:`Model`, a :class:`Cluster`, an array
of loads are taken as they are. Figures have SI units as the names say (``tpot_ms`` milliseconds).
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rackplan import answers, inputs, requests
from rackplan.requests import Request, default_of, make, named_type, options_of
from topology.base.errors import InputError
from topology.base.reading import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cost.experts.loads import ExpertLoads
    from cost.validation.validation import Validation
    from placement.engines.export import Exported
    from placement.plan import Plan
    from rackplan.requests import ClusterLike, Loads, ModelLike, PlanLike
    from rackplan.studies.run import StudyResult
    from topology.cluster import Cluster

P = ParamSpec("P")
RequestT = TypeVar("RequestT", bound=Request)
R = TypeVar("R")


RESULT = "Printed it is a line; ``.summary()`` is what the command prints, ``.to_frame()`` rows, ``.plot()`` a chart."


def door(
    request: Callable[P, RequestT], answer: Callable[[RequestT], R], returns: str = RESULT
) -> Callable[P, R]:
    """Return ``answer`` as a function whose parameters are the fields of its request."""
    of: Any = request

    @wraps(answer)
    def called(*args: Any, **values: Any) -> Any:
        return answer(make(of, *args, **values))

    options, returned = options_of(of), inspect.signature(answer).return_annotation
    ordered = sorted(fields(of), key=lambda field: (field.kw_only, field.default is not MISSING))
    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY if field.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=named_type(options[field.name][1]).text + " | None" * (field.default is None),
            )
            for field in ordered
        ],
        return_annotation=returned,
    )
    del called.__wrapped__  # its parameter is the request
    called.__module__ = __name__
    called.__name__ = called.__qualname__ = answer.__name__.removeprefix("_")
    summary, _, raises = inspect.cleandoc(answer.__doc__ or "").partition("\n\nRaises\n")
    listed = "\n".join(_parameter(of, field.name) for field in ordered)
    called.__doc__ = (
        f"{summary}\n\nParameters\n----------\n{listed}\n\nReturns\n-------\n{returned}\n"
        f"{_indented(returns)}\n\nRaises\n{raises}"
    )
    return called


def documented(request: type[Request], *names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return what lists these options among the parameters of a function's docstring, in its signature's order."""

    def put(function: Callable[P, R]) -> Callable[P, R]:
        head, _, tail = inspect.cleandoc(function.__doc__ or "").partition("Returns\n-------\n")
        summary, _, parameters = head.partition("Parameters\n----------\n")
        listed = {
            entry.partition(" :")[0]: entry.strip()
            for entry in re.split(r"(?m)^(?=\w+ :)", parameters)
            if entry
        }
        listed |= {name: _parameter(request, name) for name in names}
        text = "\n".join(listed[name] for name in inspect.signature(function).parameters if name in listed)
        function.__doc__ = f"{summary}Parameters\n----------\n{text}\n\nReturns\n-------\n{tail}"
        return function

    return put


def _parameter(request: type[Request], name: str) -> str:
    """Return an option as docstrings list a parameter: its type, its default, and what it is."""
    (option, hint), default = options_of(request)[name], default_of(request, name)
    words, kind = option.default, named_type(hint)
    if default not in (None, "", (), ...):
        words = f"{default!r} ({words})" if words else repr(default)
    head = f"{name} : {kind.text}"
    head += "" if default is ... else f", default: {_in_python(words, request)}" if words else ", optional"
    return f"{head}\n{_indented(_in_python(f'{option.help} {kind.more}'.rstrip(), request))}"


def _in_python(text: str, request: type[Request]) -> str:
    """Return the help of an option with the names that Python has for options."""
    names = {option.flag(name): name for name, (option, _) in options_of(request).items()}
    text = text.replace("; repeatable", "")
    return re.sub(r"--[a-z][a-z-]*", lambda flag: f"`{names.get(flag[0], flag[0])}`", text)


def _indented(text: str) -> str:
    return textwrap.indent(textwrap.fill(text, 108), "    ")


plan = door(requests.PlanRequest, answers.plan)
replan = door(requests.ReplanRequest, answers.replan)
score = door(requests.ScoreRequest, answers.score)
what_if = door(requests.WhatIfRequest, answers.what_if)
sweep = door(requests.SweepRequest, answers.sweep)
compare = door(requests.CompareRequest, answers.compare)
roofline = door(requests.RooflineRequest, answers.roofline)
economics = door(requests.EconomicsRequest, answers.economics)
size = door(requests.SizeRequest, answers.size)
simulate = door(requests.SimulateRequest, answers.simulate)
replay = door(requests.ReplayRequest, answers.replay)
make_deployment = door(
    requests.DeploymentRequest,
    answers.make_deployment,
    "What :func:`rackplan.make_plan` and the other functions of a step take.",
)


def _study(request: requests.StudyRequest) -> StudyResult:
    """Price the points of a study that are not in its folder yet, and return all points.

    ``study`` may also be the content of a ``STUDY.yaml``; it then needs a ``folder`` for its results.

    >>> grid = {"model": ["mixtral-8x7b"], "cluster": ["hgx-h100", "hgx-h200"]}
    >>> rackplan.study({"kind": "score", "grid": grid}, "out/mixtral")  # doctest: +SKIP

    Raises
    ------
    InputError
        If the study is invalid, its folder holds another study, or a dependency is not installed.
    """
    from rackplan.studies.run import run_study

    return run_study(request)


study = door(requests.StudyRequest, _study)


@documented(requests.PlanRequest, "cluster", "settings")
def make_cluster(
    cluster: ClusterLike, *, settings: Mapping[str, str | float] | Sequence[str] = ()
) -> Cluster:
    """Return a cluster by name, file, content of a cluster YAML or object, with ``settings`` applied.

    >>> import rackplan
    >>> own = {"domains": [{"gpu": "mine", "gpus": 8, "gpus_per_node": 8, "structure": "mesh",
    ...                     "link": "100 GB/s"}],
    ...        "gpus": {"mine": {"hbm_bytes": "288 GB", "hbm_bytes_per_s": "16 TB/s"}}}
    >>> len(rackplan.make_cluster(own).gpus)
    8

    Returns
    -------
    Cluster
        Its GPUs, links and domains; ``.to_frame()`` has a row for each GPU, ``.plot()`` is the drawing.

    Raises
    ------
    InputError
        If it cannot be built, or a setting cannot be read or used.
    """
    return inputs.cluster_of(cluster, make(requests.Set, settings=settings).settings)


@documented(requests.PlanRequest, "model", "loads", "routing", "seed")
def make_loads(
    model: ModelLike,
    loads: Loads | None = None,
    *,
    routing: str | Path | Sequence[str | Path] = (),
    seed: int = 0,
) -> ExpertLoads | None:
    """Return loads for ``model`` from files, generators or arrays (default: synthetic); None without experts.

    >>> rackplan.make_loads("mixtral-8x7b", "zipf:0.5")
    <ExpertLoads 1 x 32 layers x 8 experts: zipf:0.5 (synthetic, seed 0)>

    Returns
    -------
    ExpertLoads | None
        Tokens ``[scenarios, layers, experts]``.

    Raises
    ------
    InputError
        If some cannot be used, or the model has no experts.
    """
    request = make(requests.Loaded, loads=loads, routing=routing)
    return inputs.loads_of(inputs.model_of(model), request.loads, request.routing, seed=seed)


@documented(requests.ValidateRequest, "physics")
def validate(path: str | Path, *, physics: bool = False) -> Validation:
    """Return measured points of a CSV (docs/trust.md) beside what is predicted for each, and how far off.

    >>> rackplan.validate("my-runs.csv").summary()  # doctest: +SKIP

    Parameters
    ----------
    path : str | Path
        The CSV of measured points.

    Returns
    -------
    Validation
        ``.to_frame()`` has a row for each point, ``.plot()`` shows measured against predicted.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    from cost.validation.read import read_measurements
    from cost.validation.validation import validation

    return validation(Path(path).name, read_measurements(path), physics=physics)


@documented(requests.DrawRequest, "level")
def draw(
    cluster: ClusterLike | Plan | Sequence[ClusterLike], path: str | Path, *, level: str = "auto"
) -> Path:
    """Draw a cluster, or a plan on its cluster, as .svg, .png or .pdf; return the path.

    >>> rackplan.draw("gb200-nvl72", "rack.svg")
    PosixPath('rack.svg')

    Parameters
    ----------
    cluster : ClusterLike | Plan | Sequence[ClusterLike]
        What is drawn: a plan with its stages, experts and load; of several clusters one domain each, to one scale.
    path : str | Path
        The file, whose ending is its format.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        If it cannot be drawn or written.
    """
    from placement.plan import Plan
    from rackplan.report.results import draw_on
    from topology.draw import draw_generations

    if isinstance(cluster, Sequence) and not isinstance(cluster, str):
        draw_generations([make_cluster(name) for name in cluster], _path(path))
        return _path(path)
    draw_on(cluster if isinstance(cluster, Plan) else make_cluster(cluster), _path(path), level)
    return _path(path)


@documented(requests.ExportRequest, "plan", "to")
def export(plan: PlanLike, to: str, path: str | Path) -> Exported:
    """Write a plan in the placement format of engine ``to``; existing files are not overwritten.

    >>> rackplan.export("out", "sglang", "sglang.json")  # doctest: +SKIP

    Parameters
    ----------
    path : str | Path
        The file, which must not exist.

    Returns
    -------
    Exported
        The text of the file, the flags that the engine needs, and what it cannot hold.

    Raises
    ------
    InputError
        If the engine would reject or misread it, or the file exists or cannot be written.
    """
    from placement.engines.export import export_plan
    from placement.engines.registry import require_engine
    from topology.base.files import require_new, write_new

    target = _path(path)
    require_new(target)
    exported = export_plan(inputs.plan_of(plan), require_engine(to, "to"), str(target))
    write_new({target: exported.text.encode()})
    return exported


def write_report(result: object, path: str | Path) -> Path:
    """Write the self-contained report of a result; return its path.

    >>> rackplan.write_report(rackplan.plan("mixtral-8x7b", "hgx-h100", phase="decode"), "plan.html")
    PosixPath('plan.html')

    Parameters
    ----------
    result : Plan, Comparison, Size, ...
        What a function of rackplan returned.
    path : str | Path
        The file, .html; one that exists is replaced.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        If there is no report for this result, or it cannot be written.
    """
    from rackplan.report.results import page_of
    from topology.base.files import write_whole

    write_whole(_path(path), page_of(result).encode())
    return _path(path)


def _path(path: object) -> Path:
    if not isinstance(path, str | Path):
        raise InputError("expected a path.", field="path", value=shown(path))
    return Path(path)
