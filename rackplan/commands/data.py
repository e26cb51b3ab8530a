"""What is known: the catalog, recordings of expert loads, and measured points."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rackplan import options
from rackplan.options import arg, opt
from topology.base.errors import InputError


def catalog(
    what: Annotated[
        str | None, arg("[gpus|clusters|models|NAME]", "A list, or one entry with its figures.")
    ] = None,
    settings: options.Settings = None,
    json: options.JsonFlag = False,
) -> None:
    """Show GPUs, clusters and models, each figure with its source."""
    from rackplan.output import show
    from rackplan.views.catalog import LISTS, catalog_view

    if settings and (what is None or what in LISTS):
        raise InputError(f"--set {settings[0]}: lists are of the catalog as it is; name a cluster.")
    cluster = options.given_clusters([what], settings)[0] if what is not None and settings else None
    show(catalog_view(what, cluster), json=json)


def loads(
    files: Annotated[
        list[str],
        arg(
            "FILE...",
            "SGLang's .pt or .json, TensorRT-LLM's or SGLang's folder, vLLM's .jsonl, .npy, .npz, .csv; or a routing "
            "trace.",
        ),
    ],
    json: options.JsonFlag = False,
) -> None:
    """Describe recordings of expert loads and routing traces. Skew per layer, drift; which experts go together."""
    from rackplan.output import show
    from rackplan.views.loads import describe, loads_view
    from rackplan.views.validate import file_names

    with options.reading_progress(files) as on_progress:
        found = [describe(file, on_progress) for file in files]
    names = file_names([Path(file) for file in files])
    show(loads_view(dict(zip(names, found, strict=True))), json=json)


def validate(
    points: Annotated[
        list[Path] | None,
        arg(
            "[POINTS.csv ...]",
            "Measured points (docs/calibration.md); default: those shipped.",
        ),
    ] = None,
    details: Annotated[
        bool, opt("--details", "Print every row (else, of long files, the 20 that are furthest off).")
    ] = False,
    physics: Annotated[
        bool, opt("--physics", "Predict by the physics alone, without the correction by measured runs.")
    ] = False,
    json: options.JsonFlag = False,
) -> None:
    """Predict measured points and print how far off. Median, mean, bias, within 20 %, coverage."""
    from cost.validation.read import read_measurements, shipped_files
    from rackplan.output import show
    from rackplan.progress import progress
    from rackplan.views.validate import file_names, validate_view, validation

    paths = points or shipped_files()
    found = []
    with progress() as reporter:
        for name, path in zip(file_names(paths), paths, strict=True):
            reporter.stage(f"predicting {name}")
            found.append(validation(name, read_measurements(path), residual=not physics))
    show(validate_view(found, show_all=details), json=json)
