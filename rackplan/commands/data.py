"""Data commands: catalog, loads and validate."""

from __future__ import annotations

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
    from rackplan.views.validate import file_names

    with reading_progress(request.files) as on_progress:
        found = [describe(file, on_progress) for file in request.files]
    names = file_names([Path(file) for file in request.files])
    show(loads_doc(dict(zip(names, found, strict=True))), json=json)


@command(ValidateRequest)
def validate(request: ValidateRequest, *, json: JsonFlag = False) -> None:
    """Compare predictions with measured points. Median, mean, bias, within 20 %, coverage."""
    from cost.validation.read import read_measurements, shipped_files
    from cost.validation.validation import validation
    from rackplan.commands.output import show
    from rackplan.progress import progress
    from rackplan.views.validate import file_names, frontiers_view, validate_view

    paths = [Path(one) for one in request.points] or shipped_files()
    names, every, physics = file_names(paths), request.details, request.physics
    files = dict(zip(names, map(read_measurements, paths), strict=True))
    with progress() as reporter:
        reporter.stage(f"predicting {', '.join(names)}")
        if request.frontier:
            view = frontiers_view(files, physics=physics, show_all=every)
        else:
            found = [validation(*one, physics=physics) for one in files.items()]
            view = validate_view(found, show_all=every)
    show(view, json=json)
