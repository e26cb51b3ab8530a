"""Data commands: catalog, loads and validate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rackplan.commands.options import JsonFlag, command
from rackplan.requests import CatalogRequest, LoadsRequest, ValidateRequest


@command(CatalogRequest)
def catalog(request: CatalogRequest, *, json: JsonFlag = False) -> None:
    """Show GPUs, clusters and models, each figure with its source."""
    from cost.entries import LISTS
    from rackplan import inputs
    from rackplan.commands.output import show
    from rackplan.report.catalog import catalog_doc

    what, settings = request.what, request.settings
    if settings and (what is None or what in LISTS):
        raise request.refuse("settings", "lists show unmodified catalog figures", "name a cluster")
    cluster = inputs.clusters_of([what], settings)[0] if what is not None and settings else None
    show(catalog_doc(what, cluster), json=json)


@command(LoadsRequest)
def loads(request: LoadsRequest, *, json: JsonFlag = False) -> None:
    """Summarize recordings of expert loads and routing traces. Skew per layer, drift, co-activation."""
    from cost.experts.traces.description import describe
    from rackplan.commands.output import show
    from rackplan.inputs import reading_progress
    from rackplan.report.loads import loads_doc

    with reading_progress(request.files) as on_progress:
        found = [describe(file, on_progress) for file in request.files]
    names = _file_names([Path(file) for file in request.files])
    show(loads_doc(dict(zip(names, found, strict=True))), json=json)


@command(ValidateRequest)
def validate(request: ValidateRequest, *, json: JsonFlag = False) -> None:
    """Compare predictions with measured points. Median, mean, bias, within 20 %, coverage."""
    from cost.validation.read import read_measurements, shipped_files
    from cost.validation.validation import validation
    from rackplan.commands.output import show
    from rackplan.progress import progress
    from rackplan.report.validate import frontiers_doc, validate_doc

    paths, physics = [Path(one) for one in request.points] or shipped_files(), request.physics
    names = _file_names(paths)
    files = dict(zip(names, map(read_measurements, paths), strict=True))
    with progress() as reporter:
        reporter.stage(f"predicting {', '.join(names)}")
        if request.frontier:
            doc = frontiers_doc(files, physics=physics)
        else:
            doc = validate_doc([validation(*one, physics=physics) for one in files.items()])
    show(doc, json=json, details=request.details)


def _file_names(paths: Sequence[Path]) -> list[str]:
    """Return a name for each file, with as much of its folder as makes it unique."""
    counts = Counter(path.name for path in paths)
    names = [path.name if counts[path.name] == 1 else str(path) for path in paths]
    seen: Counter[str] = Counter()
    for i, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[i] = f"{name} ({seen[name]})"
    return names
