"""Data commands: import, loads, catalog, validate and schema."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rackplan import __version__, inputs
from rackplan.commands.options import command
from rackplan.commands.output import Run, print_text
from rackplan.progress import progress
from rackplan.requests import CatalogRequest, ImportRequest, LoadsRequest, SchemaRequest, ValidateRequest
from topology.base.errors import InputError, spelled
from topology.base.files import write_whole


@command(ImportRequest, "Cluster YAML to write. [standard output]", "FILE")
def import_(request: ImportRequest, run: Run) -> None:
    """Topo -m, NCCL XML, Slurm, topograph, ibnetdiscover, amd-smi, or a CSV of links (a,b,count,rate)."""
    from rackplan.report.cluster import import_comments, imported_doc
    from topology.base.reading import parse_yaml
    from topology.exporters import cluster_to_yaml
    from topology.files.cluster_file import read_cluster
    from topology.importers import ImportOptions, import_files

    output = run.output
    if output is not None and output.suffix.lower() not in (".yaml", ".yml"):
        raise InputError(f"-o {output}: the cluster file must end in .yaml.")
    imported = import_files(request.files, request.as_options(ImportOptions))
    text = cluster_to_yaml(
        imported.spec,
        [spelled(line) for line in import_comments(imported, __version__)],
        rates_unusual=imported.rates_unusual,
    )
    read_cluster(parse_yaml(text, "imported.yaml"), "imported.yaml", "imported")  # as other commands will
    doc = imported_doc(imported, output, text)
    if output is None:
        run.show_file(text, doc)
        return
    write_whole(output, text.encode())
    run.show(doc)


@command(CatalogRequest)
def catalog(request: CatalogRequest, run: Run) -> None:
    """A list, all lists, or one entry by its name."""
    from cost.entries import LISTS
    from rackplan.report.catalog import catalog_doc

    name, settings = request.what, request.settings
    if settings and (name is None or name in LISTS):
        raise request.refuse("settings", "lists show unmodified catalog figures", "name a cluster")
    cluster = inputs.cluster_of(name, settings) if name is not None and settings else None
    run.show(catalog_doc(name, cluster))


@command(LoadsRequest)
def loads(request: LoadsRequest, run: Run) -> None:
    """Skew per layer, drift, co-activation."""
    from cost.experts.traces.description import describe
    from rackplan.report.loads import loads_doc

    with inputs.reading_progress(request.files) as on_progress:
        descriptions = [describe(file, on_progress) for file in request.files]
    names = _file_names([Path(file) for file in request.files])
    run.show(loads_doc(dict(zip(names, descriptions, strict=True))))


@command(ValidateRequest)
def validate(request: ValidateRequest, run: Run) -> None:
    """Median, mean, bias, within 20 %, coverage."""
    from cost.validation.memory import memory_validation
    from cost.validation.read import read_measurements, shipped_files
    from cost.validation.validation import validation
    from rackplan.report.validate import frontiers_doc, validate_doc

    if request.memory is not None:
        replace(run, details=request.details).show(validate_doc(memory_validation(request.memory)))
        return
    paths, physics = [Path(name) for name in request.points] or shipped_files(), request.physics
    names = _file_names(paths)
    files = dict(zip(names, map(read_measurements, paths), strict=True))
    with progress() as reporter:
        reporter.stage(f"predicting {', '.join(names)}")
        if request.frontier:
            doc = frontiers_doc(files, physics=physics)
        else:
            doc = validate_doc(
                [validation(name, measured, physics=physics) for name, measured in files.items()]
            )
    replace(run, details=request.details).show(doc)


@command(SchemaRequest)
def schema(request: SchemaRequest, run: Run) -> None:
    """Without a name the list of them."""
    from rackplan.report.schema import json_schema, schemas_doc

    if request.name is None:
        run.show(schemas_doc())
        return
    print_text([], [json.dumps(json_schema(request.name), indent=2), "\n"])


def _file_names(paths: Sequence[Path]) -> list[str]:
    """Return a name for each file, with as much of its folder as makes it unique."""
    counts = Counter(path.name for path in paths)
    names = [path.name if counts[path.name] == 1 else str(path) for path in paths]
    earlier = [names[:at].count(name) for at, name in enumerate(names)]
    return [
        f"{name} ({repeats + 1})" if repeats else name for name, repeats in zip(names, earlier, strict=True)
    ]
