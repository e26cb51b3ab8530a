"""Documents of plans in the formats of engines: exported, checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from placement.engines.engine import Engine
from placement.engines.export import engine_balancedness
from placement.engines.manifests.write import Deployed
from placement.engines.registry import Checked
from placement.plan import Plan
from rackplan.report.doc import Code, Doc, Note, Record, Row, Shape, Table
from rackplan.report.fields import said
from rackplan.report.notes import sentence
from rackplan.report.shared import missing
from topology.base.errors import input_name

_SLOTS = "ep tp tp_source experts slots slots_per_gpu redundant moe_layers"
EXPORTED = Record.of(
    "",
    f"engine version released model checkpoint file {_SLOTS} balancedness engine_balancedness split engine_splits "
    "engine_split flags launch launch_file start_command",
    shown=f"version checkpoint {_SLOTS} balancedness engine_balancedness split engine_split",
)
GROUPS = Table.of(
    "expert_groups",
    "pool role replica stage first_layer last_layer first_rank last_rank hostlist",
    "Hosts of expert groups",
    most=8,
)
NODES = Table.of(
    "nodes",
    "replica first_rank last_rank host gpu_ids",
    "GPUs of the engine's ranks, in order",
    most=8,
    shown="replica host gpu_ids",
)
RANKS = Table.of("ranks", "replica stage rank gpu_id host device nics", "Ranks", most=0)
EXPORT = Shape("export", "A plan in the format of an engine.", (EXPORTED, GROUPS, NODES, RANKS), "text")
CHECKED = Record.of("", "engine version file can_load is_right engine_balancedness")
FINDINGS = Table.of("findings", "effect where finding", "Findings", most=None)
CHECK = Shape(
    "import-plan-check",
    "Whether an engine loads a placement file, and does what it says.",
    (CHECKED, FINDINGS),
)


def exported_doc(deployed: Deployed, text: str | None = None) -> Doc:
    """Return the document of ``rackplan export``; ``text`` is the file where none was written."""
    exported, manifest = deployed.exported[0], deployed.manifest
    engine, mapping, launch = exported.engine, exported.mapping, exported.launch
    row = {
        "engine": engine.name,
        "version": engine.version,
        "released": engine.released,
        "model": exported.model,
        "checkpoint": launch.model,
        "file": launch.file,
        "ep": mapping.ranks,
        "tp": launch.tp,
        "tp_source": exported.tp_source,
        "experts": mapping.experts,
        "slots": mapping.slots,
        "slots_per_gpu": mapping.slots_per_rank,
        "redundant": mapping.redundant,
        "moe_layers": len(mapping.layer_ids),
        "balancedness": exported.planned,
        "engine_balancedness": exported.balancedness,
        "split": launch.split,
        "engine_splits": list(engine.splits),
        "engine_split": engine.split_words,
        "flags": list(exported.flags),
        "launch": manifest.kind if manifest else "shell",
        "launch_file": str(list(deployed.files)[-1]) if manifest else None,
        "start_command": manifest.start if manifest else None,
    }
    groups = GROUPS(
        GROUPS.row(
            group,
            pool=pool.name,
            role=pool.role,
            first_layer=group.layers[0],
            last_layer=group.layers[-1],
            first_rank=group.ranks[0],
            last_rank=group.ranks[-1],
        )
        for pool in deployed.pools
        for group in pool.groups
    )
    ranks = RANKS(
        RANKS.row(place, gpu_id=place.gpu, host=deployed.names[0][place.node], nics=list(place.nics))
        for place in exported.places
    )
    start = f"{row['start_command']} {row['launch_file']}" if manifest else "\n".join(_shell(exported.flags))
    split = f"{said(row, 'engine_balancedness')} (planned: {said(row, 'balancedness')})"
    where = f"{row['slots']} slots of each of {row['moe_layers']} layers, {row['slots_per_gpu']} a GPU"
    return Doc(
        EXPORT,
        f"{exported.model} for {engine.title}",
        [
            f"{launch.file} holds {row['experts']} experts in {where}.",
            f"As {engine.title} splits tokens, balancedness is {split}.",
        ],
        [
            Note(
                "" if engine.released else f"No release of {engine.title} loads this file yet.",
                kind="warning",
            ),
            *(Note(warning, kind="warning") for warning in warnings_of(deployed)),
            EXPORTED(row),
            Code("", start, "Start with"),
            groups,
            NODES(_nodes(ranks.rows), **({"most": 0} if groups.rows else {})),
            *(Note(sentence(note)) for note in (manifest.notes if manifest else ())),
            Note("Slots of a rank are in the order of the file.", kind="method"),
            ranks,
            *([] if text is None else [Code("text", text)]),
        ],
    )


def warnings_of(deployed: Deployed) -> list[str]:
    """Return what a person should know first, in sentences."""
    return [sentence(warning) for exported in deployed.exported for warning in exported.warnings]


def _nodes(ranks: Sequence[Row]) -> Iterator[Row]:
    """Yield the ranks of a replica on a host, which follow each other."""
    for (replica, host), run in groupby(ranks, lambda row: (row["replica"], row["host"])):
        places = list(run)
        first, last = places[0]["rank"], places[-1]["rank"]
        gpus = [place["gpu_id"] for place in places]
        yield {"replica": replica, "first_rank": first, "last_rank": last, "host": host, "gpu_ids": gpus}


def _shell(flags: Sequence[str]) -> list[str]:
    """Return lines as a shell takes them; those of a file as they are."""
    if not any(line.startswith("--") for line in flags):
        return list(flags)
    return [*(line if line.startswith("#") else f"{line} \\" for line in flags[:-1]), flags[-1]]


def own_balancedness(plan: Plan, engine: Engine | None) -> float | None:
    """Return the balancedness of a plan as ``engine`` splits tokens; None where nobody says how."""
    if engine is None or plan.loads is None:
        return None
    return engine_balancedness(engine, plan.layout.tp, plan.deployment, plan.layout, plan.experts, plan.loads)


def checked_doc(checked: Checked) -> Doc:
    """Return the document of ``rackplan import-plan --check``."""
    record = CHECKED(
        {
            "engine": checked.engine.name,
            "version": checked.engine.version,
            "file": checked.file,
            "can_load": checked.loads,
            "is_right": checked.right,
            "engine_balancedness": checked.balancedness,
        }
    )
    return Doc(
        CHECK,
        f"{checked.file} for {checked.engine.title}",
        [checked.verdict],
        [
            record,
            FINDINGS(
                {"effect": found.kind, "where": found.where, "finding": found.what}
                for found in checked.findings
            ),
            *missing(record, f"Not evaluated without {input_name('loads')}, or without a valid placement."),
        ],
    )
