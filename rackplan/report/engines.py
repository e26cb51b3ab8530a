"""Documents of plans in the formats of engines: exported, checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from placement.engines.export import Exported
from placement.engines.manifests.write import Deployed
from placement.engines.registry import Checked
from rackplan.report.doc import Code, Doc, Note, Record, Row, Shape, Table
from rackplan.report.fields import phrase
from rackplan.report.notes import sentence
from rackplan.report.shared import missing
from topology.base.errors import input_name

EXPORTED = Record.of(
    "",
    "version checkpoint ep tp tp_source experts slots slots_per_gpu redundant moe_layers balancedness "
    "engine_balancedness split engine_split | engine released model file engine_splits flags launch launch_file "
    "start_command",
)
GROUPS = Table.of(
    "expert_groups",
    "pool role replica stage first_layer last_layer first_rank last_rank hostlist",
    "Hosts of expert groups",
    max_rows=8,
)
NODES = Table.of(
    "nodes", "replica host gpu_ids | first_rank last_rank", "GPUs of the engine's ranks, in order", max_rows=8
)
RANKS = Table.of("ranks", "replica stage rank gpu_id host device nics", "Ranks", max_rows=0)
EXPORT = Shape("export", "A plan in the format of an engine.", (EXPORTED, GROUPS, NODES, RANKS), "text")
CHECKED = Record.of("", "engine version file can_load is_right engine_balancedness")
FINDINGS = Table.of("findings", "effect where finding", "Findings", max_rows=None)
IMPORT_PLAN_CHECK = Shape(
    "import-plan-check",
    "Whether an engine loads a placement file, and does what it says.",
    (CHECKED, FINDINGS),
)


def exported_doc(deployed: Deployed, text: str | None = None) -> Doc:
    """Return the document of ``rackplan export``; ``text`` is the file where none was written."""
    exported, manifest = deployed.exported[0], deployed.manifest
    engine, mapping, launch = exported.engine, exported.mapping, exported.launch
    row = EXPORTED.row(
        exported,
        mapping,
        launch,
        engine,
        engine=engine.name,
        checkpoint=launch.model,
        ep=mapping.ranks,
        slots_per_gpu=mapping.slots_per_rank,
        moe_layers=len(mapping.layer_ids),
        balancedness=exported.planned,
        engine_balancedness=exported.balancedness,
        engine_splits=engine.splits,
        engine_split=engine.split_words,
        launch=manifest.kind if manifest else "shell",
        launch_file=str(list(deployed.files)[-1]) if manifest else None,
        start_command=manifest and manifest.start,
    )
    groups = GROUPS(
        GROUPS.row(
            group,
            pool,
            pool=pool.name,
            first_layer=group.layers[0],
            last_layer=group.layers[-1],
            first_rank=group.ranks[0],
            last_rank=group.ranks[-1],
        )
        for pool in deployed.pools
        for group in pool.groups
    )
    ranks = RANKS(
        RANKS.row(place, gpu_id=place.gpu, host=deployed.names[0][place.node]) for place in exported.places
    )
    start = (
        f"{row['start_command']} {row['launch_file']}" if manifest else "\n".join(_started(deployed.exported))
    )
    split = f"{phrase(row, 'engine_balancedness')} (planned: {phrase(row, 'balancedness')})"
    unreleased = "" if engine.released else f"No release of {engine.title} loads this file yet."
    pool_files = [export.launch.file for export in deployed.exported[1:]]
    pool_words = (
        f"; {' and '.join(pool_files)} those of the other pool{'s' * (len(pool_files) > 1)}"
        if pool_files
        else ""
    )
    where = f"{row['slots']} slots of each of {row['moe_layers']} layers, {row['slots_per_gpu']} a GPU"
    return Doc(
        EXPORT,
        f"{exported.model} for {engine.title}",
        [
            f"{launch.file} holds {row['experts']} experts in {where}{pool_words}.",
            f"As {engine.title} splits tokens, balancedness is {split}.",
        ],
        [
            *(Note(warning, kind="warning") for warning in (unreleased, *warnings_of(deployed))),
            EXPORTED(row),
            Code("", start, "Start with"),
            groups,
            NODES(_nodes(ranks.rows), **({"max_rows": 0} if groups.rows else {})),
            *(Note(sentence(note)) for note in (manifest.notes if manifest else ())),
            Note("Slots of a rank are in the order of the file.", kind="method"),
            ranks,
            *([] if text is None else [Code("text", text)]),
        ],
    )


def warnings_of(deployed: Deployed) -> list[str]:
    """Return what a person should know first, in sentences."""
    return [sentence(warning) for exported in deployed.exported for warning in exported.warnings]


def _nodes(ranks: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
    """Yield the ranks of a replica on a host, which follow each other."""
    for (replica, host), run in groupby(ranks, itemgetter("replica", "host")):
        gpus = {place["rank"]: place["gpu_id"] for place in run}
        yield replica, host, list(gpus.values()), min(gpus), max(gpus)


def _started(exported: Sequence[Exported]) -> Iterator[str]:
    """Yield the lines that start a replica of each pool."""
    for export in exported:
        yield from [f"# a replica that does {export.launch.role}, {export.launch.file}"] * (len(exported) > 1)
        yield from _shell(export.flags)


def _shell(flags: Sequence[str]) -> list[str]:
    """Return lines as a shell takes them; those of a file as they are."""
    if not any(line.startswith("--") for line in flags):
        return list(flags)
    return [*(line if line.startswith("#") else f"{line} \\" for line in flags[:-1]), flags[-1]]


def checked_doc(checked: Checked) -> Doc:
    """Return the document of ``rackplan import-plan --check``."""
    engine = checked.engine
    row = {"can_load": checked.loads, "is_right": checked.right, "engine_balancedness": checked.balancedness}
    record = CHECKED(CHECKED.row(checked, engine, engine=engine.name, **row))
    return Doc(
        IMPORT_PLAN_CHECK,
        f"{checked.file} for {engine.title}",
        [checked.verdict],
        [
            record,
            FINDINGS((finding.kind, finding.where, finding.what) for finding in checked.findings),
            *missing(record, f"Not evaluated without {input_name('loads')}, or without a valid placement."),
        ],
    )
