"""Python interface: the commands as functions that take and return objects.

Names of models and clusters mean what they mean on the command line; a :class:`Model`, a :class:`Cluster`, an array
of loads are taken as they are. Figures have SI units as the names say (``tpot_ms`` milliseconds).
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_type_hints

from rackplan import answers, inputs
from rackplan.requests import (
    CompareRequest,
    DeploymentRequest,
    FleetRequest,
    PlanRequest,
    ReplanRequest,
    ReplayRequest,
    Request,
    ScoreRequest,
    SimulateRequest,
    SizeRequest,
    StudyRequest,
    SweepRequest,
    WhatIfRequest,
    make,
    options_of,
)
from topology.base.errors import InputError
from topology.base.reading import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cost.experts.loads import ExpertLoads
    from placement.engines.export import Exported
    from placement.plan import Plan
    from rackplan.requests import ClusterLike, Loads, ModelLike, PlanLike
    from rackplan.studies.result import StudyResult
    from rackplan.views.validate import Validation
    from topology.cluster import Cluster

P = ParamSpec("P")
Asked = TypeVar("Asked", bound=Request)
R = TypeVar("R")


def door(request: Callable[P, Asked], answer: Callable[[Asked], R]) -> Callable[P, R]:
    """Return ``answer`` as a function with the fields of its request as parameters."""
    of: Any = request

    @wraps(answer)
    def called(*args: Any, **given: Any) -> Any:
        return answer(make(of, *args, **given))

    summary, _, rest = inspect.cleandoc(answer.__doc__ or "").partition("\n\nRaises\n")
    called.__doc__ = f"{summary}\n\nParameters\n----------\n{_documented(of)}\n\nRaises\n{rest}"
    kinds, returned = get_type_hints(of), inspect.signature(answer).return_annotation
    named = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY if one.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if one.default is MISSING else one.default,
            annotation=kinds[one.name],
        )
        for one in sorted(fields(of), key=lambda one: (one.kw_only, one.default is not MISSING))
    ]
    called.__signature__ = inspect.Signature(named, return_annotation=returned)  # type: ignore[attr-defined]
    del called.__wrapped__  # its parameter is the request
    called.__module__ = __name__
    return called


def _documented(request: type[Request]) -> str:
    """Return the help of each option in docstring format."""
    lines = [
        f"{name}:\n{textwrap.indent(textwrap.fill(option.documented, 108), '    ')}"
        for name, (option, _) in options_of(request).items()
    ]
    return "\n".join(lines)


plan = door(PlanRequest, answers.plan)
replan = door(ReplanRequest, answers.replan)
score = door(ScoreRequest, answers.score)
what_if = door(WhatIfRequest, answers.what_if)
sweep = door(SweepRequest, answers.sweep)
compare = door(CompareRequest, answers.compare)
fleet = door(FleetRequest, answers.fleet)
size = door(SizeRequest, answers.size)
simulate = door(SimulateRequest, answers.simulate)
replay = door(ReplayRequest, answers.replay)
make_deployment = door(DeploymentRequest, answers.deployment)


def _study(request: StudyRequest) -> StudyResult:
    """Price the points of a study that are not in its folder yet, and return all points.

    ``study`` may also be the content of a ``STUDY.yaml``; it then needs a ``folder`` for its results.

    Raises
    ------
    InputError
        If the study is invalid, its folder holds another study, or a dependency is not installed.
    """
    from rackplan.studies.begin import begin, opened

    return begin(request, *opened(request))


study = door(StudyRequest, _study)


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

    Raises
    ------
    InputError
        If it cannot be built, or a setting cannot be read or used.
    """
    from rackplan.requests import Set

    return inputs.clusters_of([cluster], make(Set, settings=settings).settings)[0]


def make_loads(
    model: ModelLike,
    loads: Loads | None = None,
    *,
    routing: str | Path | Sequence[str | Path] = (),
    seed: int = 0,
) -> ExpertLoads | None:
    """Return loads for ``model`` from files, generators or arrays (default: synthetic); None without experts.

    Raises
    ------
    InputError
        If some cannot be used, or the model has no experts.
    """
    from rackplan.requests import Loaded

    given = make(Loaded, loads=loads, routing=routing)
    return inputs.loads_of(inputs.model_of(model), given.loads, given.routing, seed=seed)


def validate(path: str | Path, *, physics: bool = False) -> Validation:
    """Return measured points of a CSV (docs/calibration.md) with predictions and errors.

    Parameters
    ----------
    physics:
        Use the bare model, without the built-in correction by measured runs.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    from cost.validation.read import read_measurements
    from rackplan.views.validate import validation

    return validation(Path(path).name, read_measurements(path), physics=physics)


def draw(cluster: ClusterLike | Plan, path: str | Path, *, level: str = "auto") -> Path:
    """Draw a cluster, or a plan on its cluster, as .svg, .png or .pdf; return the path.

    Raises
    ------
    InputError
        If it cannot be drawn or written.
    """
    from placement.plan import Plan
    from rackplan.views.results import draw_on

    draw_on(cluster if isinstance(cluster, Plan) else make_cluster(cluster), _path(path), level)
    return _path(path)


def export(plan: PlanLike, to: str, path: str | Path) -> Exported:
    """Write a plan in the placement format of engine ``to``; existing files are not overwritten.

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

    Raises
    ------
    InputError
        If there is no report for this result, or it cannot be written.
    """
    from rackplan.views.results import page_of
    from topology.base.files import write_whole

    write_whole(_path(path), page_of(result).encode())
    return _path(path)


def _path(path: object) -> Path:
    if not isinstance(path, str | Path):
        raise InputError("expected a path.", field="path", value=shown(path))
    return Path(path)
