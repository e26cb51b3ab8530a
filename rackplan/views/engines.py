"""Plans in engines' forms: an export with what to start the engine with, and what a check found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from placement.engines.engine import Engine
from placement.engines.export import engine_balancedness
from placement.engines.manifests.pools import Pool
from placement.engines.manifests.write import Deployed
from placement.engines.mapping import Place
from placement.engines.registry import Checked
from placement.plan import Plan
from rackplan.schemas.engines import CheckPrinted, ExportPrinted
from rackplan.views.blocks import Block, Heading, Lines, Text, View, labelled, picked, sections
from rackplan.views.plan import plan_view
from topology.base.units import plural

_FINDINGS = {"refused": "NOT LOADED", "wrong": "WRONG", "note": "note"}
MOST_NODES = 8
"""Nodes whose GPUs are listed; ``--json`` has all."""


def export_view(deployed: Deployed) -> View:
    """Return what ``rackplan export`` says."""
    exported, manifest = deployed.exported[0], deployed.manifest
    engine, mapping, launch = exported.engine, exported.mapping, exported.launch
    unreleased = " (NOT RELEASED)" * (not engine.released)
    experts = (
        f"{mapping.experts} in {plural(mapping.slots, 'slot')} per layer ({mapping.slots_per_rank} a GPU, "
        f"{mapping.redundant} redundant copies), {plural(len(mapping.layer_ids), 'MoE layer')}, EP {mapping.ranks}"
    )
    balance = (
        f"{exported.balancedness:.4f} under the plan's loads as the engine splits them (planned: "
        f"{exported.planned:.4f})"
    )
    split = (
        f"the engine splits an expert's tokens {engine.split_words}",
        f"the plan expects {launch.split}",
        f"taken with tensor parallelism {launch.tp} of attention, as {exported.tp_source} says",
    )
    blocks = sections(
        [
            Heading(f"{exported.model} for {engine.title}{unreleased}"),
            Text(", ".join(map(str, deployed.files)), "Written"),
            Text(experts, "Experts"),
            Text(engine.version, "Checked with"),
            *labelled("Split", *split),
            Text(balance, "Balancedness"),
        ],
        [Lines(["Start with", *(f"  {line}" for line in _start(deployed))])],
        [*(_groups(deployed.pools) or _order(exported.places))],
        [
            *(Text(note, "First") for note in (manifest.notes if manifest else ())),
            *(Text(warning, "Warning") for one in deployed.exported for warning in one.warnings),
        ],
    )
    return View(blocks, _export_data(deployed))


def _start(deployed: Deployed) -> list[str]:
    """Return what is typed to start the engine."""
    if deployed.manifest is None:
        return _shell(deployed.exported[0].flags)
    return [f"{deployed.manifest.start} {list(deployed.files)[-1]}"]


def _groups(pools: Sequence[Pool]) -> list[Block]:
    """Return the hosts of each stage and expert group, a line each."""
    words = [f"{pool.name}, {group.words}" for pool in pools for group in pool.groups]
    more = f"and {len(words) - MOST_NODES} more (--json lists all)" if len(words) > MOST_NODES else ""
    return labelled("Hosts", *words[:MOST_NODES], more)


def import_view(plan: Plan, files: Mapping[str, str], engine: Engine | None) -> View:
    """Return what ``rackplan import-plan`` says: the plan, what is known of its file, and how ``engine`` splits."""
    view, own = plan_view(plan, files), None
    notes = list(plan.notes)
    if engine is not None and plan.loads is not None:
        tp = plan.layout.tp
        own = engine_balancedness(engine, tp, plan.deployment, plan.layout, plan.experts, plan.loads)
        if own is not None:
            notes.append(
                f"as {engine.title} splits tokens with tensor parallelism {tp}, balancedness is {own:.4f}"
            )
    return View([*view.blocks, *labelled("Notes", *notes)], dict(view.data) | {"engine_balancedness": own})


def check_view(checked: Checked) -> View:
    """Return what ``rackplan check`` says."""
    blocks = sections(
        [
            Heading(f"{checked.file} for {checked.engine.title}"),
            Text(checked.engine.version, "Checked with"),
            Text("yes" if checked.loads else "no", "Loads"),
            Text("yes" if checked.right else "no", "Right"),
        ],
        [Text(f"{finding.where}: {finding.what}", _FINDINGS[finding.kind]) for finding in checked.findings],
    )
    data: CheckPrinted = {
        "engine": checked.engine.name,
        "loads": checked.loads,
        "right": checked.right,
        "version": checked.engine.version,
        "balancedness": checked.balancedness,
        "findings": [picked(finding, "where what kind") for finding in checked.findings],
    }
    return View(blocks, data)


def _shell(flags: tuple[str, ...]) -> list[str]:
    """Lines as a shell takes them; those of a file as they are."""
    if not any(line.startswith("--") for line in flags):
        return list(flags)
    return [*(line if line.startswith("#") else f"{line} \\" for line in flags[:-1]), flags[-1]]


def _order(places: tuple[Place, ...]) -> list[Block]:
    """Which GPU is which rank, a line a node."""
    lines = ["rank r of the engine runs on this GPU; slots of a rank are in the file's order"]
    runs = [list(run) for _, run in groupby(places, key=lambda place: (place.replica, place.node))]
    several = any(place.replica for place in places)
    for run in runs[:MOST_NODES]:
        first, last = run[0], run[-1]
        replica = f"replica {first.replica}, " if several else ""
        ranks = f"ranks {first.rank}-{last.rank}" if last.rank > first.rank else f"rank {first.rank}"
        lines.append(f"{replica}{ranks}: {', '.join(place.gpu for place in run)}")
    if len(runs) > MOST_NODES:
        lines.append(f"and {len(runs) - MOST_NODES} more nodes in the same order (--json lists all)")
    return labelled("GPU order", *lines)


def _export_data(deployed: Deployed) -> ExportPrinted:
    exported, manifest = deployed.exported[0], deployed.manifest
    engine, mapping, launch = exported.engine, exported.mapping, exported.launch
    return {
        "engine": engine.name,
        "file": launch.file,
        "version": engine.version,
        "released": engine.released,
        "split": {"engine": list(engine.splits), "plan": launch.split, "how": engine.split_words},
        "tp": launch.tp,
        "model": launch.model,
        "balancedness": {"engine": exported.balancedness, "plan": exported.planned},
        "experts": mapping.experts,
        "slots": mapping.slots,
        "redundant": mapping.redundant,
        "slots_per_gpu": mapping.slots_per_rank,
        "moe_layers": len(mapping.layer_ids),
        "ep": mapping.ranks,
        "flags": list(exported.flags),
        "warnings": [warning for one in deployed.exported for warning in one.warnings],
        "launch": None
        if manifest is None
        else {
            "kind": manifest.kind,
            "file": str(list(deployed.files)[-1]),
            "start": manifest.start,
            "notes": list(manifest.notes),
        },
        "expert_groups": [
            {
                "pool": pool.name,
                "role": pool.role,
                "replica": group.replica,
                "stage": group.stage,
                "layers": [group.layers.start, group.layers.stop - 1],
                "ranks": [group.ranks.start, group.ranks.stop - 1],
                "hosts": group.hostlist,
            }
            for pool in deployed.pools
            for group in pool.groups
        ],
        "ranks": [picked(place, "replica stage rank gpu") for place in exported.places],
    }
